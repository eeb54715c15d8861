// The engine on WebGPU. Where that is software, one pipeline takes up to a second to compile: few models, each loaded once, and what
// one test leaves the next goes on with.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { SOON, setup } from '../support/browser.js';
import { readTensors } from '../support/safetensors.js';
import { COUNTED, DESTROYED, fixture, largest, serveFixture } from './support.js';

const there = setup({ folder: 'dist', webgpu: true });
const golden = JSON.parse(readFileSync(new URL('golden.json', import.meta.url), 'utf8'));
const goldenOf = name => golden.find(({ model }) => model === name);
const quantised = goldenOf('hf/llama-gqa/model-q8_0.gguf');
const hybrid = goldenOf('hf/falcon-h1/model.gguf');
/** What the tests of a model hand on. */
const kept = {};

test('a quantised transformer answers as the native command does, on subgroups', async t => {
  kept.context = await there.browser.newContext();
  const page = kept.page = await there.tab(kept.context, { prologue: COUNTED + DESTROYED });
  const { answer, info, report, offered, cancelled } = await page.evaluate(async ([url, prompt, maxTokens]) => {
    const cancelled = await cancelLoad(url, { device: 'webgpu' }, ({ stage }) => stage === 'compile');
    globalThis.model = await Selkie.load(url, { device: 'webgpu', exact: true });
    const answer = await model.complete(prompt, { maxTokens, ignoreEos: true });
    const adapter = await navigator.gpu.requestAdapter();
    const report = await Selkie.device(true);
    return { answer: { ...answer, ids: [...answer.ids] }, info: model.info, report, offered: [...adapter.features], cancelled };
  }, [serveFixture(there.server, quantised.model), quantised.prompt, quantised.ids.length]);
  assert.equal(cancelled.code, 'aborted');
  assert.ok(cancelled.time < SOON, `cancelling a load took ${cancelled.time} ms`);
  assert.deepEqual([info.backend, info.fallback], ['webgpu', null]);
  assert.deepEqual(answer.ids, quantised.ids);
  assert.equal(answer.text, quantised.text);
  assert.equal(report.adapter.software, true);
  assert.ok(offered.includes('subgroups'), `this browser offers none: ${offered}`);
  assert.ok(report.adapter.features.some(feature => feature.startsWith('subgroups')), `${report.adapter.features}`);
  assert.match(`${info.device}, ${report.adapter.name}`, /swiftshader, .*swiftshader/i);
  assert.ok(report.adapter.readBandwidth > 1e6 && report.adapter.dispatchSeconds > 0);
});

test('a decoded token makes no buffer and no pipeline, and few dispatches', async t => {
  const { layers, shorter, longer } = await kept.page.evaluate(async () => {
    const channel = new BroadcastChannel('counts');
    const counts = () => new Promise(resolve => {
      channel.onmessage = ({ data }) => resolve(data);
      channel.postMessage('ask');
    });
    const cost = async maxTokens => {
      await model.state.clear();
      const before = await counts();
      await model.complete([5, 6, 7], { maxTokens, ignoreEos: true });
      const after = await counts();
      return Object.fromEntries(Object.entries(after).map(([name, count]) => [name, count - before[name]]));
    };
    await cost(24);
    return { layers: model.info.layers, shorter: await cost(8), longer: await cost(24) };
  });
  const perToken = name => (longer[name] - shorter[name]) / 16;
  for (const name of ['createBuffer', 'createComputePipeline', 'createComputePipelineAsync']) assert.equal(perToken(name), 0, name);
  const dispatches = perToken('dispatchWorkgroups');
  t.diagnostic(`${dispatches} dispatches and ${perToken('createBindGroup')} bind groups a token, ${layers} layers`);
  assert.ok(dispatches > layers && dispatches <= 9 * layers + 8, `${dispatches} dispatches a token, ${layers} layers`);
});

test('the kernels hold to the reference', async () => {
  const { own, one } = await kept.page.evaluate(async () => {
    const matrices = await model.matrices();
    const result = { own: await model.check(), one: await model.check(matrices.find(({ shape }) => shape.length === 2).name) };
    model.dispose();
    return result;
  });
  assert.ok(own.length > 0 && one.length > 0);
  for (const { name, ok, error, tolerance } of [...own, ...one]) assert.ok(ok && error <= tolerance, `${name} is off by ${error}`);
});

test('a hybrid of the first prototype gives the recorded logits', async () => {
  const name = 'mbjs/m1-batch2-v3';
  const { ids, ...tensors } = readTensors(fixture(`${name}/expected.safetensors`));
  const { batch, seqLen } = JSON.parse(readFileSync(fixture(`${name}/config.json`), 'utf8'));
  const url = serveFixture(there.server, `${name}/model.mbjs`, `${name}/config.json`);
  const { logits, backend } = await kept.page.evaluate(async ([url, ids, batch, seqLen]) => {
    globalThis.model = await Selkie.load(url, { device: 'webgpu', exact: true, context: 8192 });
    return { logits: [...await model.forward(ids, batch, seqLen)], backend: model.info.backend };
  }, [url, ids, batch, seqLen]);
  assert.equal(backend, 'webgpu');
  assert.ok(largest(logits, tensors['logits.reference']) < 2e-4);
});

test('cancelling is heard at once while the prompt is read and while text comes', async () => {
  const { prompt, decode, before, after } = await kept.page.evaluate(async () => {
    const say = async () => [...(await model.complete([5, 6, 7], { maxTokens: 3, ignoreEos: true, state: await model.newState() })).ids];
    const before = await say();
    const result = { prompt: await cancelAt(model, 'onPrompt'), decode: await cancelAt(model, 'onToken') };
    return { ...result, before, after: await say() };
  });
  for (const [what, { finish, time }] of Object.entries({ prompt, decode })) {
    assert.equal(finish, 'cancelled', what);
    assert.ok(time < SOON, `${what}: ${time} ms`);
  }
  assert.equal(prompt.newTokens, 0);
  assert.ok(decode.newTokens < 3000);
  assert.deepEqual(after, before, 'the model goes on as before');
});

test('a device that is lost rejects what is asked of the model', async () => {
  const { text, lost, after } = await kept.page.evaluate(async () => {
    const text = outcome(model.complete([1, 2, 3], { maxTokens: 3000, ignoreEos: true }));
    await pause(200);
    new BroadcastChannel('destroy').postMessage(null);
    const { code } = await model.lost;
    return { text: await text, lost: code, after: await outcome(model.tokenize('x')) };
  });
  assert.deepEqual([text.code, lost, after.code], ['device-lost', 'device-lost', 'device-lost']);
});

test('a hybrid answers as the native command does; its state goes on in a page that is loaded again', async () => {
  const { prompt, ids, model } = hybrid;
  const url = serveFixture(there.server, model);
  const page = kept.page;
  const { whole, first, planes } = await page.evaluate(async ([url, prompt, maxTokens]) => {
    globalThis.model = await Selkie.load(url, { device: 'webgpu', exact: true });
    const say = (maxTokens, state) => model.complete(prompt, { maxTokens, ignoreEos: true, state });
    const whole = [...(await say(maxTokens, await model.newState())).ids];
    const first = [...(await say(8)).ids];
    const file = await model.state.save({ first });
    const root = await navigator.storage.getDirectory();
    const stream = await (await root.getFileHandle('a.state', { create: true })).createWritable();
    await stream.write(file);
    await stream.close();
    const planes = (await model.state.planes()).map(({ shape, values, ...rest }) =>
      ({ ...rest, whole: values.length === shape.reduce((a, b) => a * b, 1) && values.some(value => value !== 0) }));
    return { whole, first, planes };
  }, [url, prompt, ids.length]);
  assert.deepEqual(whole, ids);
  assert.deepEqual(first, ids.slice(0, 8));
  assert.ok(planes.length > 0 && planes.every(({ whole }) => whole), JSON.stringify(planes));

  await page.close();
  const next = kept.page = await there.tab(kept.context);
  const { text, result } = await next.evaluate(async ([url, prompt, maxTokens]) => {
    const model = await Selkie.load(url, { device: 'webgpu', exact: true });
    const root = await navigator.storage.getDirectory();
    const text = await model.state.load(await (await root.getFileHandle('a.state')).getFile());
    const result = await model.complete([...prompt, ...text.first], { maxTokens, ignoreEos: true });
    model.dispose();
    return { text, result: { ...result, ids: [...result.ids] } };
  }, [url, prompt, ids.length - 8]);
  assert.deepEqual(text, { first });
  assert.deepEqual(result.ids, ids.slice(8));
  // The last token was never read: nobody had asked for what follows it.
  assert.ok(result.cachedTokens >= prompt.length + first.length - 1, `${result.cachedTokens} tokens were held`);
  await kept.context.close();
});
