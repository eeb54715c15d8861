// What the engine makes of a device that is none, and of the CPU.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SOON, setup } from '../support/browser.js';
import { WITHOUT_GPU, serveFixture } from './support.js';

const there = setup({ folder: 'dist', webgpu: true });

test('without WebGPU the CPU does it, and says why; who insists on a GPU gets an error', async t => {
  const page = await there.tab(await there.context(t), { prologue: WITHOUT_GPU });
  const url = serveFixture(there.server, 'hf/llama-gqa/model.gguf');
  const { auto, insisted, report } = await page.evaluate(async url => ({
    auto: await loadInfo(url), insisted: await loadInfo(url, { device: 'webgpu' }), report: await Selkie.device(),
  }), url);
  assert.equal(auto.value?.backend, 'cpu', auto.message);
  assert.ok(auto.value.fallback.length > 10, auto.value.fallback);
  assert.equal(insisted.code, 'no-gpu', insisted.message);
  assert.equal(report.adapter, null);
});

test('a GPU in software is not taken unless it is asked for', async t => {
  const page = await there.tab(await there.context(t));
  const auto = await page.evaluate(url => loadInfo(url), serveFixture(there.server, 'hf/llama-gqa/model.gguf'));
  assert.equal(auto.value?.backend, 'cpu', auto.message);
  assert.match(auto.value.fallback, /software/i);
});

test('cancelling is heard at once while the prompt is read and while text comes', async t => {
  const page = await there.tab(await there.context(t));
  const { prompt, decode, before, after } = await page.evaluate(async url => {
    const model = await Selkie.load(url, { device: 'cpu', context: 8192 });
    const say = async () => [...(await model.complete([5, 77, 130, 9], { maxTokens: 3, ignoreEos: true, state: await model.newState() })).ids];
    const before = await say();
    const result = { prompt: await cancelAt(model, 'onPrompt'), decode: await cancelAt(model, 'onToken') };
    return { ...result, before, after: await say() };
  }, serveFixture(there.server, 'hf/mamba2-g1/model-q8_0.gguf'));
  for (const [what, { finish, time }] of Object.entries({ prompt, decode })) {
    assert.equal(finish, 'cancelled', what);
    assert.ok(time < SOON, `${what}: ${time} ms`);
  }
  assert.equal(prompt.newTokens, 0);
  assert.ok(decode.newTokens < 3000);
  assert.deepEqual(after, before, 'the model goes on as before');
});

test('the kernels hold to the reference', async t => {
  const page = await there.tab(await there.context(t));
  const { own, matrices, all, unknown } = await page.evaluate(async url => {
    const model = await Selkie.load(url, { device: 'cpu' });
    const matrices = await model.matrices();
    const all = [];
    for (const { name } of matrices) all.push(...await model.check(name));
    return { own: await model.check(), matrices, all, unknown: await outcome(model.check('no such matrix')) };
  }, serveFixture(there.server, 'hf/llama-gqa/model-q8_0.gguf'));
  assert.ok(own.length > 0 && matrices.length > 5 && all.length >= matrices.length);
  for (const { name, ok, error, tolerance } of [...own, ...all]) assert.ok(ok && error <= tolerance, `${name} is off by ${error}`);
  assert.equal(unknown.code, 'argument', unknown.message);
});
