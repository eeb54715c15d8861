// Which files belong together: addresses, dropped files, and files that are named one by one.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setup } from '../support/browser.js';
import { bytes, idOf, safetensors } from '../support/data.js';

const there = setup({ folder: 'test/build' });
const text = value => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
const [one, two] = [bytes(300_000, 1), bytes(200_000, 2)];
const tensors = safetensors(150_000);

/** Loads files as if they were dropped: pairs of names and bytes; `null`: a nameless blob. */
function drop(page, ...files) {
  return page.evaluate(files => loadInfo(files.map(([name, base64]) => {
    const data = Uint8Array.from(atob(base64), letter => letter.charCodeAt(0));
    return name === null ? new Blob([data]) : new File([data], name);
  })), files.map(([name, data]) => [name, data.toString('base64')]));
}

test('a .gguf, in one file or in parts', async t => {
  const page = await there.tab(await there.context(t));
  const single = await drop(page, ['a model.gguf', one]);
  assert.equal(single.value?.id, idOf(one), single.message);
  assert.equal(single.value.name, 'a model');
  const nameless = await drop(page, [null, one]);
  assert.equal(nameless.value?.id, idOf(one), nameless.message);
  const parts = await drop(page, ['m-00002-of-00002.gguf', two], ['m-00001-of-00002.gguf', one]);
  assert.equal(parts.value?.id, idOf(one, two), parts.message);
});

test('weights with the files that describe them', async t => {
  const page = await there.tab(await there.context(t));
  const { value, message } = await drop(page,
    ['tokenizer.json', text('T')], ['model.safetensors', tensors], ['config.json', text('C')],
    ['tokenizer_config.json', text('TC')], ['chat_template.jinja', text('J')], ['README.md', text('#')]);
  assert.deepEqual(value?.received, { weights: 'model.safetensors', config: 'C', tokenizer: 'T', tokenizerConfig: 'TC', chatTemplate: 'J' }, message);
  const shards = await drop(page,
    ['model-00002-of-00002.safetensors', tensors], ['model.safetensors.index.json', text('I')], ['model-00001-of-00002.safetensors', tensors]);
  assert.deepEqual(shards.value?.received, { weights: 'model-00001-of-00002.safetensors model-00002-of-00002.safetensors', index: 'I' }, shards.message);
  const hybrid = await drop(page, ['model.mbjs', bytes(1000, 1, 'SJBM')], ['my hybrid.json', text('H')]);
  assert.deepEqual([hybrid.value?.received, hybrid.value?.hybrid], [{ weights: 'model.mbjs', config: 'H' }, true], hybrid.message);
});

test('files that make no model', async t => {
  const page = await there.tab(await there.context(t));
  const cases = [
    [[['m-00001-of-00002.gguf', one]], 'file', /m-00002-of-00002\.gguf is missing/],
    [[['a.gguf', one], ['b.gguf', two]], 'argument', /several models.*a\.gguf, b\.gguf/],
    [[['notes.txt', text('hello')], ['config.json', text('C')]], 'file', /none of the files is a.*notes\.txt, config\.json/],
    [[['photo.gguf', text('\u0089PNG and much more of it')]], 'file', /photo\.gguf is neither/],
    [[['empty.gguf', text('')]], 'file', /ends after 0 bytes/],
    [[], 'argument', /no files/],
  ];
  for (const [files, code, message] of cases) {
    const failed = await drop(page, ...files);
    assert.equal(failed.code, code, failed.message);
    assert.match(failed.message, message);
  }
});

test('an address of weights brings what lies beside them, and what is not there does not matter', async t => {
  const page = await there.tab(await there.context(t));
  const { server } = there;
  const url = `${server.serve('/org/small/model.safetensors', tensors)}?download=true`;
  server.serve('/org/small/config.json', text({ c: 1 }));
  server.serve('/org/small/tokenizer.json', text({ t: 1 }));
  // Some servers answer with their start page to whatever they do not have.
  server.serve('/org/small/chat_template.jinja', text('<!doctype html><title>Start</title>'), { type: 'text/html' });
  const expected = { weights: 'model.safetensors', config: '{"c":1}', tokenizer: '{"t":1}' };
  const first = await page.evaluate(url => loadInfo(url), url);
  assert.deepEqual([first.value?.received, first.value?.name], [expected, 'small'], first.message);
  const asked = server.requests.length;
  const again = await page.evaluate(() => loadInfo('stored:small'));
  assert.deepEqual(again.value?.received, expected, again.message);
  assert.equal(server.requests.length, asked, 'nothing is asked for again, not even what was not there');
  const passing = await page.evaluate(url => loadInfo(url, { keep: false }), url);
  assert.deepEqual(passing.value?.received, expected, passing.message);
});

test('an address of one part brings the others', async t => {
  const page = await there.tab(await there.context(t));
  const { server } = there;
  server.serve('/split/big-00001-of-00002.gguf', one);
  const url = server.serve('/split/big-00002-of-00002.gguf', two);
  const { value, message } = await page.evaluate(url => loadInfo(url), url);
  assert.equal(value?.id, idOf(one, two), message);
  assert.equal((await page.evaluate(() => Selkie.store.list()))[0].bytes, 500_000);
  server.files.delete('/split/big-00001-of-00002.gguf');
  const missing = await page.evaluate(url => loadInfo(url, { keep: false }), url);
  assert.equal(missing.code, 'not-found');
});

test('an index brings all its shards, however many, not more than a few at a time', async t => {
  const page = await there.tab(await there.context(t));
  const { server } = there;
  const names = Array.from({ length: 7 }, (_, i) => `s${i}.safetensors`);
  const shards = names.map((_, i) => safetensors(100_000, i + 1));
  names.forEach((name, i) => server.serve(`/sharded/${name}`, shards[i]));
  const map = Object.fromEntries(names.map((name, i) => [`tensor${i}`, name]));
  const url = server.serve('/sharded/model.safetensors.index.json', text({ weight_map: map }));
  for (const keep of [true, false]) {
    const { value, message } = await page.evaluate(([url, keep]) => loadInfo(url, { keep }), [url, keep]);
    assert.equal(value?.id, idOf(...shards), message);
    assert.equal(value.received.weights, names.join(' '));
  }
  server.serve('/sharded/model.safetensors.index.json', text({ weight_map: { t: '../../elsewhere.safetensors' } }));
  const outside = await page.evaluate(url => loadInfo(url, { keep: false }), url);
  assert.equal(outside.code, 'file');
  assert.match(outside.message, /no weight_map of file names/);
});

test('files that are named one by one, from addresses or from here', async t => {
  const page = await there.tab(await there.context(t));
  const { server } = there;
  const weights = server.serve('/parts/w.safetensors', tensors);
  const config = server.serve('/elsewhere/my-config.json', text('C'));
  const urls = await page.evaluate(([weights, config]) => loadInfo({ name: 'mine', weights, config: new URL(config) }), [weights, config]);
  assert.deepEqual([urls.value?.received, urls.value?.name], [{ weights: 'w.safetensors', config: 'C' }, 'mine'], urls.message);
  assert.equal((await page.evaluate(() => loadInfo('stored:mine'))).value?.received.config, 'C');
  const mixed = await page.evaluate(weights => loadInfo({ weights: [weights], config: new Blob(['B']), tokenizer: new File(['T'], 't.json') }), weights);
  assert.deepEqual(mixed.value?.received, { weights: 'w.safetensors', config: 'B', tokenizer: 'T' }, mixed.message);
  const missing = await page.evaluate(weights => loadInfo({ weights, config: '/not/there.json' }, { keep: false }), weights);
  assert.equal(missing.code, 'not-found');
});

test('relative addresses are the page\'s', async t => {
  const page = await there.tab(await there.context(t));
  there.server.serve('/relative/m.gguf', one);
  assert.equal((await page.evaluate(() => loadInfo('relative/m.gguf'))).value?.id, idOf(one));
});
