// Answers of the engine in the browser, held to those of the native command and of others.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setup } from '../support/browser.js';
import { readTensors } from '../support/safetensors.js';
import { fixture, serveFixture } from './support.js';

const there = setup({ folder: 'dist', webgpu: true });
const golden = JSON.parse(readFileSync(new URL('golden.json', import.meta.url), 'utf8'));

for (const device of ['cpu', 'webgpu']) {
  test(`models from an address answer as the native command does, on ${device}`, async t => {
    const page = await there.tab(await there.context(t));
    for (const { model, prompt, ids, text } of golden) {
      const url = serveFixture(there.server, model);
      const answer = await page.evaluate(async ([url, device, prompt, maxTokens]) => {
        const model = await Selkie.load(url, { device, exact: true });
        const pieces = [];
        const generation = model.complete(prompt, { maxTokens, ignoreEos: true });
        for await (const piece of generation) pieces.push(piece);
        const result = await generation;
        model.dispose();
        return { ...result, ids: [...result.ids], pieces, backend: model.info.backend };
      }, [url, device, prompt, ids.length]);
      assert.equal(answer.backend, device);
      assert.deepEqual(answer.ids, ids, `${model} on ${device}`);
      assert.deepEqual([answer.text, answer.pieces.join('')], [text, text], model);
      assert.deepEqual([answer.finish, answer.promptTokens, answer.newTokens], ['length', prompt.length, ids.length]);
    }
  });

  test(`dropped safetensors with their configuration answer as transformers do, on ${device}`, async t => {
    const page = await there.tab(await there.context(t));
    for (const model of ['llama-gqa', 'mamba']) {
      const { 'greedy.prompt': prompt, 'greedy.tokens': tokens } = readTensors(fixture(`hf/${model}/expected.safetensors`));
      const files = ['model.safetensors', 'config.json'].map(name => [name, readFileSync(fixture(`hf/${model}/${name}`)).toString('base64')]);
      const ids = await page.evaluate(async ([files, device, prompt, maxTokens]) => {
        const dropped = files.map(([name, data]) => new File([Uint8Array.from(atob(data), letter => letter.charCodeAt(0))], name));
        const model = await Selkie.load(dropped, { device, exact: true });
        const { ids } = await model.complete(prompt, { maxTokens, ignoreEos: true });
        model.dispose();
        return [...ids];
      }, [files, device, prompt, tokens.length]);
      assert.deepEqual(ids, tokens, model);
    }
  });
}

test('an embedding has a length of one, text and tokens turn into each other', async t => {
  const page = await there.tab(await there.context(t));
  const url = serveFixture(there.server, 'hf/llama-gqa/model.gguf');
  const { embedding, same, ids, text } = await page.evaluate(async url => {
    const model = await Selkie.load(url, { device: 'cpu' });
    const ids = await model.tokenize('Häuser in the sea');
    const [embedding, same] = [await model.embed('Häuser in the sea'), await model.embed(ids)];
    return { embedding: [...embedding], same: [...same], ids: ids.length, text: await model.detokenize(ids) };
  }, url);
  assert.ok(Math.abs(Math.hypot(...embedding) - 1) < 1e-5);
  assert.deepEqual(embedding, same);
  assert.ok(ids > 5);
  assert.equal(text, 'Häuser in the sea');
});

test('the same seed gives the same text, penalties and stops hold', async t => {
  const page = await there.tab(await there.context(t));
  const url = serveFixture(there.server, 'hf/llama-gqa/model.gguf');
  const { texts, stopped, biased } = await page.evaluate(async url => {
    const model = await Selkie.load(url, { device: 'cpu' });
    const say = async options => model.complete([5, 77, 130, 9], { maxTokens: 12, ignoreEos: true, state: await model.newState(), ...options });
    const texts = [];
    for (const seed of [1, 1, 2]) texts.push([...(await say({ temperature: 2, topK: 50, seed })).ids].join());
    const greedy = await say({});
    return { texts, stopped: await say({ stop: greedy.text.slice(3, 5) }), biased: [...(await say({ logitBias: { 42: 1000 } })).ids] };
  }, url);
  assert.equal(texts[0], texts[1]);
  assert.notEqual(texts[0], texts[2]);
  assert.equal(stopped.finish, 'stop');
  assert.ok(stopped.newTokens < 12);
  assert.deepEqual(biased, Array(12).fill(42));
});

test('a wrong file and a damaged one are refused by the engine', async t => {
  const page = await there.tab(await there.context(t));
  const whole = readFileSync(fixture('hf/llama-gqa/model.gguf'));
  const cut = there.server.serve('/cut.gguf', whole.subarray(0, 200_000));
  const header = Buffer.from(whole);
  header.writeUInt32LE(0xffffffff, 16);
  const cases = [cut, there.server.serve('/header.gguf', header), there.server.serve('/lonely.mbjs', readFileSync(fixture('mbjs/m2-init/model.mbjs')))];
  for (const url of cases) {
    const { code, message } = await page.evaluate(url => loadInfo(url), url);
    assert.ok(['file', 'unsupported'].includes(code), `${url}: ${code} ${message}`);
    assert.ok(message.length > 20, message);
  }
});
