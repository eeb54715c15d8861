// What the engine makes of the device: none, one that goes away, cancelling, and what a step asks of it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setup } from '../support/browser.js';
import { COUNTED, DESTROYED, WITHOUT_GPU, serveFixture } from './support.js';

const there = setup({ folder: 'dist', webgpu: true });

test('without WebGPU the CPU does it, and says why; who insists on a GPU gets an error', async t => {
  const page = await there.tab(await there.context(t), { prologue: WITHOUT_GPU });
  const url = serveFixture(there.server, 'hf/llama-gqa/model.gguf');
  const { auto, insisted, report } = await page.evaluate(async url => ({
    auto: await loadInfo(url), insisted: await loadInfo(url, { device: 'webgpu' }), report: await Selkie.device(),
  }), url);
  assert.equal(auto.value?.backend, 'cpu', auto.message);
  assert.ok(auto.value.fallback.length > 10, auto.value.fallback);
  assert.equal(insisted.code, 'no-gpu');
  assert.equal(report.adapter, null);
});

test('a GPU in software is not taken unless it is asked for', async t => {
  const page = await there.tab(await there.context(t));
  const url = serveFixture(there.server, 'hf/llama-gqa/model.gguf');
  const { auto, asked, report } = await page.evaluate(async url => ({
    auto: await loadInfo(url), asked: await loadInfo(url, { device: 'webgpu' }), report: await Selkie.device(true),
  }), url);
  assert.deepEqual([auto.value?.backend, asked.value?.backend, asked.value?.fallback], ['cpu', 'webgpu', null], auto.message ?? asked.message);
  assert.match(auto.value.fallback, /software/i);
  assert.equal(report.adapter.software, true);
  assert.ok(report.adapter.features.includes('subgroups'), `${report.adapter.features}`);
  assert.ok(report.adapter.readBandwidth > 1e6 && report.adapter.dispatchSeconds > 0);
});

test('a device that is lost rejects what is asked of the model; it can be loaded again', async t => {
  const page = await there.tab(await there.context(t), { prologue: DESTROYED });
  const url = serveFixture(there.server, 'hf/llama-gqa/model.gguf');
  const { text, lost, after, again } = await page.evaluate(async url => {
    const model = await Selkie.load(url, { device: 'webgpu' });
    const text = outcome(model.complete([1, 2, 3], { maxTokens: 4000, ignoreEos: true }));
    await pause(200);
    new BroadcastChannel('destroy').postMessage(null);
    const { code } = await model.lost;
    const again = await outcome(Selkie.load('stored:model', { device: 'webgpu' }).then(model => model.complete([1, 2, 3], { maxTokens: 2, ignoreEos: true })));
    return { text: await text, lost: code, after: await outcome(model.tokenize('x')), again };
  }, url);
  assert.deepEqual([text.code, lost, after.code], ['device-lost', 'device-lost', 'device-lost']);
  assert.equal(again.value?.newTokens, 2, again.message);
});

for (const device of ['cpu', 'webgpu']) {
  test(`cancelling takes less than 100 ms while the prompt is read and while text comes, on ${device}`, async t => {
    const page = await there.tab(await there.context(t));
    const url = serveFixture(there.server, 'hf/llama-gqa/model.gguf');
    const { prompt, decode, after } = await page.evaluate(async ([url, device]) => {
      const model = await Selkie.load(url, { device, context: 4096 });
      /** Cancels at the first event of a kind, and gives what came and how long it took. */
      const cancelAt = async (ids, event) => {
        await model.state.clear();
        const controller = new AbortController();
        let cancelled = 0;
        const cancel = () => {
          cancelled ||= performance.now();
          controller.abort();
        };
        const result = await model.complete(ids, { maxTokens: 3000, ignoreEos: true, signal: controller.signal, [event]: cancel });
        return { finish: result.finish, newTokens: result.newTokens, time: performance.now() - cancelled };
      };
      const long = Array.from({ length: 3500 }, (_, i) => 3 + i % 250);
      const [prompt, decode] = [await cancelAt(long, 'onPrompt'), await cancelAt([5, 6, 7], 'onToken')];
      await model.state.clear();
      const { ids } = await model.complete([5, 77, 130, 9, 201, 33, 64, 12], { maxTokens: 3, ignoreEos: true });
      return { prompt, decode, after: [...ids] };
    }, [url, device]);
    for (const [what, { finish, time }] of Object.entries({ prompt, decode })) {
      assert.equal(finish, 'cancelled', what);
      assert.ok(time < 100, `${what}: ${time} ms`);
    }
    assert.equal(prompt.newTokens, 0);
    assert.ok(decode.newTokens < 3000);
    assert.deepEqual(after, [37, 86, 99], 'the model goes on as before');
  });
}

test('a decoded token makes no buffer and no pipeline, and few dispatches', async t => {
  const page = await there.tab(await there.context(t), { prologue: COUNTED });
  const url = serveFixture(there.server, 'hf/llama-gqa/model.gguf');
  const { layers, shorter, longer } = await page.evaluate(async url => {
    const model = await Selkie.load(url, { device: 'webgpu' });
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
    await cost(40);
    return { layers: model.info.layers, shorter: await cost(8), longer: await cost(40) };
  }, url);
  const perToken = name => (longer[name] - shorter[name]) / 32;
  for (const name of ['createBuffer', 'createComputePipeline', 'createComputePipelineAsync']) assert.equal(perToken(name), 0, name);
  const dispatches = perToken('dispatchWorkgroups');
  t.diagnostic(`${dispatches} dispatches and ${perToken('createBindGroup')} bind groups a token, ${layers} layers`);
  assert.ok(dispatches > layers && dispatches <= 9 * layers + 8, `${dispatches} dispatches a token, ${layers} layers`);
});

test('the kernels hold to the reference', async t => {
  const page = await there.tab(await there.context(t));
  const url = serveFixture(there.server, 'hf/llama-gqa/model-q8_0.gguf');
  for (const device of ['cpu', 'webgpu']) {
    const { own, matrices, one, unknown } = await page.evaluate(async ([url, device]) => {
      const model = await Selkie.load(url, { device });
      const matrices = await model.matrices();
      const largest = matrices.find(({ shape }) => shape.length === 2);
      return { own: await model.check(), matrices, one: await model.check(largest.name), unknown: await outcome(model.check('no such matrix')) };
    }, [url, device]);
    assert.ok(own.length > 0 && matrices.length > 5);
    for (const { name, ok, error, tolerance } of [...own, ...one]) assert.ok(ok && error <= tolerance, `${device}: ${name} is off by ${error}`);
    assert.ok(['argument', 'not-found'].includes(unknown.code), unknown.message);
  }
});
