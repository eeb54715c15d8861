// What the main thread and the worker make of an engine: texts, states, requests in OpenAI's shape, cancelling, errors.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SOON, setup } from '../support/browser.js';
import { bytes } from '../support/data.js';

const there = setup({ folder: 'test/build' });

/** A tab with `model` in it. */
async function loaded(t, options = {}) {
  const page = await there.tab(await there.context(t), options);
  const url = there.server.serve('/api.gguf', bytes(50_000));
  await page.evaluate(async url => { globalThis.model = await Selkie.load(url); }, url);
  return page;
}

const messages = [{ role: 'user', content: 'hello' }];

test('a text can be iterated and awaited, late and more than once', async t => {
  const page = await loaded(t);
  const { text, pieces, again, tokens, prompts, ...result } = await page.evaluate(async messages => {
    const [tokens, prompts, pieces, again] = [[], [], [], []];
    const generation = model.chat(messages, { onToken: piece => tokens.push(piece), onPrompt: (read, of) => prompts.push([read, of]) });
    for await (const piece of generation) pieces.push(piece);
    const result = await generation;
    for await (const piece of generation) again.push(piece);
    return { ...result, ids: result.ids instanceof Uint32Array, pieces, again, tokens, prompts };
  }, messages);
  assert.ok(pieces.length > 50);
  assert.equal(pieces.join(''), text);
  assert.deepEqual([tokens, again], [pieces, pieces]);
  assert.deepEqual(prompts.at(-1), [result.promptTokens, result.promptTokens]);
  assert.deepEqual([result.finish, result.ids, result.cachedTokens, result.newTokens], ['stop', true, 0, pieces.length]);
  assert.ok(result.decodePerSecond > 0 && result.promptPerSecond > 0);
  assert.ok(result.contextUsed > result.promptTokens && result.contextSize === 4096);
});

test('the state holds the conversation: only what is new is read', async t => {
  const page = await loaded(t);
  const { first, second, third, lengths } = await page.evaluate(async messages => {
    const first = await model.chat(messages);
    const fork = await model.state.fork();
    const next = [...messages, { role: 'assistant', content: 'x' }, { role: 'user', content: 'more' }];
    const second = await model.chat(next, { maxTokens: 3 });
    const third = await model.chat(next, { maxTokens: 3, state: await model.newState() });
    await model.state.clear();
    return { first, second, third, lengths: [await fork.length(), await model.state.length()] };
  }, messages);
  assert.ok(second.cachedTokens > 10 && second.cachedTokens < second.promptTokens);
  assert.deepEqual([third.cachedTokens, third.finish, third.newTokens], [0, 'length', 3]);
  assert.deepEqual(lengths, [first.contextUsed, 0]);
});

test('a state is saved with a text and read back, by a model that it fits', async t => {
  const page = await loaded(t);
  const saved = await page.evaluate(async messages => {
    const before = await model.chat(messages);
    const file = await model.state.save({ messages, title: 'a talk' });
    model.dispose();
    model = await Selkie.load('stored:api');
    const text = await model.state.load(new Blob([file]));
    const state = await model.newState();
    await state.load(file);
    const damaged = await outcome(state.load(new Uint8Array(3)));
    return { before, text, lengths: [await model.state.length(), await state.length()], bytes: file.length, damaged, planes: await state.planes() };
  }, messages);
  assert.deepEqual(saved.text, { messages, title: 'a talk' });
  assert.deepEqual(saved.lengths, [saved.before.contextUsed, saved.before.contextUsed]);
  assert.equal(saved.damaged.code, 'internal');
  assert.equal(saved.planes.length, 2);
});

test('cancelling by a signal, and by leaving the loop, ends the text within 100 ms', async t => {
  const page = await loaded(t);
  const { signalled, left, before } = await page.evaluate(async messages => {
    const controller = new AbortController();
    const generation = model.chat(messages, { signal: controller.signal });
    for await (const _ of generation) break;
    const left = await generation;
    await model.state.clear();
    const another = model.chat(messages, { signal: controller.signal });
    await pause(300);
    controller.abort();
    const { value: signalled, time } = await outcome(another);
    return { left, signalled: { ...signalled, time }, before: await model.chat(messages, { signal: controller.signal }) };
  }, messages);
  assert.equal(left.finish, 'cancelled');
  assert.ok(left.newTokens < 10, `${left.newTokens} tokens`);
  assert.equal(signalled.finish, 'cancelled');
  assert.ok(signalled.newTokens > 1 && signalled.text.length > 0);
  assert.ok(signalled.time < SOON, `${signalled.time} ms`);
  assert.deepEqual([before.finish, before.newTokens, before.text], ['cancelled', 0, '']);
});

test('cancelling while pipelines are made', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/compiling.gguf', bytes(50_000));
  const { code, time, stored } = await page.evaluate(async url => {
    const controller = new AbortController();
    let loading;
    await new Promise(resolve => {
      loading = Selkie.load(url, { signal: controller.signal, onProgress: ({ stage }) => stage === 'compile' && resolve() });
    });
    controller.abort();
    return { ...await outcome(loading), stored: await Selkie.store.list() };
  }, url);
  assert.equal(code, 'aborted');
  assert.ok(time < SOON, `${time} ms`);
  assert.equal(stored[0].have, 50_000);
});

test('calls are carried out one after the other', async t => {
  const page = await loaded(t);
  const order = await page.evaluate(async messages => {
    const order = [];
    const note = name => () => order.push(name);
    await Promise.all([
      model.chat(messages, { maxTokens: 20 }).then(note('chat')), model.tokenize('abc').then(note('tokenize')),
      model.complete('x', { maxTokens: 5 }).then(note('complete')), model.embed('x').then(note('embed')),
    ]);
    return order;
  }, messages);
  assert.deepEqual(order, ['chat', 'tokenize', 'complete', 'embed']);
});

test('requests and answers in OpenAI\'s shape', async t => {
  const page = await loaded(t);
  const { whole, chunks, bare, wrong, cancelled, partial } = await page.evaluate(async messages => {
    const create = request => model.chat.completions.create({ messages, seed: 1, ...request });
    const collect = async stream => {
      const chunks = [];
      for await (const chunk of await stream) chunks.push(chunk);
      return chunks;
    };
    const whole = await create({ temperature: null, max_tokens: 10, model: 'mine' });
    const chunks = await collect(create({ stream: true, stream_options: { include_usage: true } }));
    const bare = await collect(create({ stream: true, max_completion_tokens: 2, max_tokens: 50 }));
    const controller = new AbortController();
    const cancelling = create({ signal: controller.signal });
    const streamed = collect(create({ signal: controller.signal, stream: true }));
    controller.abort();
    return { whole, chunks, bare, wrong: await outcome(create({ n: 2 })), cancelled: await outcome(cancelling), partial: await streamed };
  }, messages);
  assert.match(whole.id, /^chatcmpl-[0-9a-f]{24}$/);
  assert.deepEqual({ ...whole, id: '', created: 0 }, {
    id: '', created: 0, model: 'mine', object: 'chat.completion',
    choices: [{ index: 0, message: { role: 'assistant', content: whole.choices[0].message.content }, finish_reason: 'length', logprobs: null }],
    usage: { prompt_tokens: 23, completion_tokens: 10, total_tokens: 33, prompt_tokens_details: { cached_tokens: 0 } },
  });
  assert.ok(Math.abs(whole.created - Date.now() / 1000) < 60);
  assert.deepEqual(chunks[0].choices[0].delta, { role: 'assistant', content: '' });
  assert.ok(chunks.every(({ id, object, model }) => id === chunks[0].id && object === 'chat.completion.chunk' && model === 'api'));
  const text = chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('');
  assert.ok(text.startsWith(whole.choices[0].message.content));
  assert.equal(chunks.at(-2).choices[0].finish_reason, 'stop');
  assert.deepEqual([chunks.at(-1).choices, chunks.at(-2).usage], [[], null]);
  assert.ok(chunks.at(-1).usage.prompt_tokens_details.cached_tokens > 0);
  assert.deepEqual([bare.length, 'usage' in bare.at(-1), bare.at(-1).choices[0].finish_reason], [4, false, 'length']);
  assert.equal(wrong.code, 'unsupported');
  assert.equal(cancelled.code, 'aborted');
  assert.equal(partial.at(-1).choices[0].finish_reason, null);
});

test('errors of the engine keep their kind, disposing rejects what is left', async t => {
  const page = await loaded(t);
  const { long, iterated, foreign, freed, waiting, after, isError } = await page.evaluate(async messages => {
    const long = await outcome(model.complete('x'.repeat(5000)));
    const iterated = await outcome((async () => { for await (const _ of model.complete('x'.repeat(5000))); })());
    const other = await Selkie.load('stored:api');
    const foreign = await outcome(other.chat(messages, { state: model.state }));
    const fork = await model.state.fork();
    fork.dispose();
    fork.dispose();
    const freed = await outcome(fork.length());
    const chat = outcome(other.chat(messages));
    await pause(100);
    other.dispose();
    const isError = await model.complete('x'.repeat(5000)).then(() => false, error => error instanceof SelkieError && error instanceof Error);
    return { long, iterated, foreign, freed, waiting: await chat, after: await outcome(other.tokenize('x')), isError };
  }, messages);
  assert.deepEqual([long.code, long.message], ['context', '5000 tokens, of 4096']);
  assert.equal(iterated.code, 'context');
  assert.equal(foreign.code, 'argument');
  assert.deepEqual([freed.code, waiting.code, after.code], ['disposed', 'disposed', 'disposed']);
  assert.ok(isError);
});

test('a worker that cannot be had, and an engine that traps, are lost', async t => {
  const page = await there.tab(await there.context(t), { prologue: 'throw new Error("no such luck");' });
  const url = there.server.serve('/api.gguf', bytes(50_000));
  const failed = await page.evaluate(url => loadInfo(url), url);
  assert.deepEqual([failed.code, /no such luck/.test(failed.message)], ['internal', true], failed.message);

  const prologue = 'const { stringify } = JSON; JSON.stringify = value => { if (value?.newTokens !== undefined || value?.decodedTokens !== undefined) throw new WebAssembly.RuntimeError("unreachable"); return stringify(value); };';
  const trapping = await loaded(t, { prologue });
  const { chat, lost, after } = await trapping.evaluate(async messages => {
    const chat = await outcome(model.chat(messages, { maxTokens: 2 }));
    const { code, message } = await model.lost;
    return { chat, lost: { code, message }, after: await outcome(model.tokenize('x')) };
  }, messages);
  assert.deepEqual([chat.code, lost.code, after.code], ['internal', 'internal', 'internal']);
  assert.match(lost.message, /broke off \(unreachable\)/);
});

test('a hybrid is made from its configuration, and its weights go out and in', async t => {
  const page = await there.tab(await there.context(t));
  const hybrid = await page.evaluate(async () => {
    const hybrid = await Selkie.create({ vocabSize: 256, seed: 1 });
    const file = await hybrid.export({ fp16: true });
    await hybrid.import(file);
    const dropped = await Selkie.load([new File([file], 'model.mbjs'), new File(['{}'], 'config.json')]);
    return {
      is: [hybrid instanceof Hybrid, hybrid instanceof Model, dropped instanceof Hybrid],
      logits: (await hybrid.forward([1, 2, 3, 4], 2, 2)).length, ids: [...await hybrid.generate([7], 3)], parameters: await hybrid.parameters(),
      wrong: await outcome(hybrid.import(new ArrayBuffer(10))), embedding: (await hybrid.embed([1])).length, left: file.length,
    };
  });
  assert.deepEqual(hybrid.is, [true, true, true]);
  assert.deepEqual([hybrid.logits, hybrid.ids, hybrid.embedding], [1024, [7, 0, 1, 2], 64]);
  assert.deepEqual(hybrid.parameters[0].shape, [8, 8]);
  assert.ok(hybrid.left > 0, 'import does not take the file away');
  assert.equal(hybrid.wrong.code, 'file');
});

test('the device is described', async t => {
  const page = await there.tab(await there.context(t));
  const report = await page.evaluate(() => Selkie.device(true));
  assert.equal(report.cpu.simd, 'relaxed');
  assert.match(report.userAgent, /Chrome/);
  assert.equal(report.adapter.readBandwidth, 1e10);
});
