// The device that the worker asks for, in a browser with WebGPU in software.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setup } from '../support/browser.js';
import { bytes } from '../support/data.js';

const there = setup({ folder: 'test/build', webgpu: true });

test('subgroups and f16 are asked for where the adapter has them, and its own limits', async t => {
  const page = await there.tab(await there.context(t));
  const { offered, limit, report } = await page.evaluate(async () => {
    const adapter = await navigator.gpu.requestAdapter();
    return { offered: [...adapter.features], limit: adapter.limits.maxBufferSize, report: await Selkie.device() };
  });
  const wanted = ['subgroups', 'shader-f16'].filter(feature => offered.includes(feature));
  assert.ok(wanted.includes('subgroups'), `this browser offers none: ${offered}`);
  for (const feature of wanted) assert.ok(report.adapter.features.includes(feature), `${report.adapter.features}`);
  assert.equal(report.adapter.limits.maxBufferSize, limit);
});

test('a device that is lost rejects what is asked of the model, and resolves lost', async t => {
  const prologue = `{
    const { requestDevice } = GPUAdapter.prototype;
    GPUAdapter.prototype.requestDevice = async function (...args) {
      const device = await requestDevice.apply(this, args);
      new BroadcastChannel('destroy').onmessage = () => device.destroy();
      return device;
    };
  }`;
  const page = await there.tab(await there.context(t), { prologue });
  const url = there.server.serve('/lost.gguf', bytes(50_000));
  const { chat, lost, after, again } = await page.evaluate(async url => {
    const model = await Selkie.load(url, { device: 'webgpu' });
    const chat = outcome(model.chat([{ role: 'user', content: 'hello' }]));
    await pause(200);
    new BroadcastChannel('destroy').postMessage(null);
    const { code, message } = await model.lost;
    const again = await outcome(Selkie.load('stored:lost').then(model => model.chat([{ role: 'user', content: 'hello' }], { maxTokens: 2 })));
    return { chat: await chat, lost: { code, message }, after: await outcome(model.tokenize('x')), again };
  }, url);
  assert.deepEqual([chat.code, lost.code, after.code], ['device-lost', 'device-lost', 'device-lost']);
  assert.match(lost.message, /destroyed/);
  assert.equal(again.value?.newTokens, 2, again.message);
});
