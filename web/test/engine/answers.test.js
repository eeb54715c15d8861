// Answers of the engine on the CPU, held to those of the native command and of others.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { SOON, setup } from '../support/browser.js';
import { readTensors } from '../support/safetensors.js';
import { fixture, serveFixture } from './support.js';

const there = setup({ folder: 'dist' });
const golden = JSON.parse(readFileSync(new URL('golden.json', import.meta.url), 'utf8'));

test('models from an address answer as the native command does', async t => {
  const page = await there.tab(await there.context(t));
  for (const { model, prompt, ids, text } of golden) {
    const answer = await page.evaluate(async ([url, prompt, maxTokens]) => {
      const model = await Selkie.load(url, { device: 'cpu', exact: true });
      const pieces = [];
      const generation = model.complete(prompt, { maxTokens, ignoreEos: true });
      for await (const piece of generation) pieces.push(piece);
      const result = await generation;
      model.dispose();
      return { ...result, ids: [...result.ids], pieces, backend: model.info.backend };
    }, [serveFixture(there.server, model), prompt, ids.length]);
    assert.equal(answer.backend, 'cpu');
    assert.deepEqual(answer.ids, ids, model);
    assert.deepEqual([answer.text, answer.pieces.join('')], [text, text], model);
    assert.deepEqual([answer.finish, answer.promptTokens, answer.newTokens], ['length', prompt.length, ids.length]);
  }
});

test('dropped safetensors with their configuration answer as transformers do', async t => {
  const page = await there.tab(await there.context(t));
  for (const model of ['llama-gqa', 'mamba']) {
    const { 'greedy.prompt': prompt, 'greedy.tokens': tokens } = readTensors(fixture(`hf/${model}/expected.safetensors`));
    const files = ['model.safetensors', 'config.json'].map(name => [name, readFileSync(fixture(`hf/${model}/${name}`)).toString('base64')]);
    const ids = await page.evaluate(async ([files, prompt, maxTokens]) => {
      const dropped = files.map(([name, data]) => new File([Uint8Array.from(atob(data), letter => letter.charCodeAt(0))], name));
      const model = await Selkie.load(dropped, { device: 'cpu', exact: true });
      const { ids } = await model.complete(prompt, { maxTokens, ignoreEos: true });
      model.dispose();
      return [...ids];
    }, [files, prompt, tokens.length]);
    assert.deepEqual(ids, tokens, model);
  }
});

test('a load is cancelled at once; a download that is cut goes on, in two tabs, and the answer is that of the native command', async t => {
  const context = await there.context(t);
  const [page, other] = [await there.tab(context), await there.tab(context)];
  const { model, prompt, ids } = golden[0];
  const path = '/cut.gguf';
  const url = there.server.serve(path, readFileSync(fixture(model)), { rate: 400_000 });
  const { code, time } = await page.evaluate(url => cancelLoad(url, { device: 'cpu' }, ({ loaded }) => loaded > 150_000), url);
  assert.equal(code, 'aborted');
  assert.ok(time < SOON, `it took ${time} ms`);

  Object.assign(there.server.files.get(path), { rate: 1_000_000, cut: 200_000 });
  const answer = page => page.evaluate(async ([url, prompt, maxTokens]) => {
    const model = await Selkie.load(url, { device: 'cpu', exact: true });
    return [...(await model.complete(prompt, { maxTokens, ignoreEos: true })).ids];
  }, [url, prompt, ids.length]);
  assert.deepEqual(await Promise.all([answer(page), answer(other)]), [ids, ids]);
  const starts = there.server.starts(path);
  assert.deepEqual(starts, [...starts].sort((a, b) => a - b), 'nothing is fetched twice');
  assert.ok(starts.length >= 3 && starts[1] >= 50_000, `asked for from ${starts}`);
});

test('a chat is written as its template says, and what was read is not read again', async t => {
  const page = await there.tab(await there.context(t));
  const template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ strftime_now('%Y') | length }}>";
  const url = serveFixture(there.server, 'hf/llama-gqa/model.safetensors', 'hf/llama-gqa/config.json');
  for (const name of ['tokenizer.json', 'tokenizer_config.json']) there.server.serve(`/fixtures/hf/llama-gqa/${name}`, readFileSync(fixture(`hf/tokenizer/${name}`)));
  there.server.serve('/fixtures/hf/llama-gqa/chat_template.jinja', Buffer.from(template));
  const { info, chat, second, completion, chunks, without } = await page.evaluate(async ([url, plain]) => {
    const model = await Selkie.load(url, { device: 'cpu' });
    const messages = [{ role: 'user', content: 'Seals in the sea' }];
    const options = { maxTokens: 4, ignoreEos: true };
    const chat = await model.chat(messages, options);
    const prompt = await model.tokenize('<user>Seals in the sea4>');
    await model.state.clear();
    const same = await model.complete(prompt, options);
    const second = await model.chat([...messages, { role: 'assistant', content: chat.text }, { role: 'user', content: 'And?' }], options);
    const completion = await model.chat.completions.create({ messages, max_tokens: 3 });
    const chunks = [];
    for await (const chunk of await model.chat.completions.create({ messages, max_tokens: 3, stream: true })) chunks.push(chunk);
    const untold = await Selkie.load(plain, { device: 'cpu' });
    const without = await outcome(untold.chat(messages));
    return { info: model.info, chat: { ids: [...chat.ids], same: [...same.ids] }, second, completion, chunks, without };
  }, [url, serveFixture(there.server, 'hf/llama-gqa/model.gguf')]);
  assert.ok(info.hasTokenizer && info.hasChatTemplate);
  assert.deepEqual(chat.ids, chat.same);
  assert.ok(second.cachedTokens > 5, `${second.cachedTokens} tokens were held`);
  assert.equal(completion.object, 'chat.completion');
  assert.equal(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join(''), completion.choices[0].message.content);
  assert.equal(without.code, 'unsupported');
});

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
  const cut = there.server.serve('/short.gguf', whole.subarray(0, 200_000));
  const header = Buffer.from(whole);
  header.writeUInt32LE(0xffffffff, 16);
  const cases = [cut, there.server.serve('/header.gguf', header), there.server.serve('/lonely.mbjs', readFileSync(fixture('mbjs/m2-init/model.mbjs')))];
  for (const url of cases) {
    const { code, message } = await page.evaluate(url => loadInfo(url, { device: 'cpu' }), url);
    assert.ok(['file', 'unsupported'].includes(code), `${url}: ${code} ${message}`);
    assert.ok(message.length > 20, message);
  }
});
