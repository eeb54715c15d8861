// Files that are missing, wrong, short or changed, and storage that is full.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setup } from '../support/browser.js';
import { bytes, idOf } from '../support/data.js';

const there = setup({ folder: 'test/build' });
const data = bytes(3_000_000);
const load = (page, source, options) => page.evaluate(([source, options]) => loadInfo(source, options), [source, options]);
const list = page => page.evaluate(() => Selkie.store.list());

for (const keep of [true, false]) {
  test(`answers that are no model have typed errors and leave nothing, keep: ${keep}`, async t => {
    const page = await there.tab(await there.context(t));
    const { server } = there;
    const html = Buffer.from('<!doctype html><title>Not here</title>'.padEnd(4000));
    const cases = [
      [`${server.origin}/missing.gguf`, 'not-found', /404/],
      [server.serve('/gone.gguf', data, { status: 410 }), 'not-found', /410/],
      [server.serve('/secret.gguf', data, { status: 403 }), 'network', /403/],
      [server.serve('/page.gguf', html, { type: 'text/html' }), 'file', /web page/],
      [server.serve('/unlabelled.gguf', html), 'file', /web page/],
      [server.serve('/other.gguf', bytes(20_000, 1, 'PK\x03\x04')), 'file', /neither GGUF, safetensors nor MBJS: it begins with 50 4b 03 04/],
      [server.serve('/lfs.gguf', Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n')), 'file', /Git LFS pointer/],
      [server.serve('/tiny.gguf', Buffer.from('GGU')), 'file', /ends after 3 bytes/],
      ['stored:nothing', 'not-found', /no model nothing/],
      ['http://[', 'argument', /no address/],
      [null, 'argument', /no source/],
      [{ name: 'x' }, 'argument', /no source/],
    ];
    for (const [source, code, message] of cases) {
      const failed = await load(page, source, { keep });
      assert.equal(failed.code, code, `${source}: ${failed.message}`);
      assert.match(failed.message, message);
    }
    assert.deepEqual(await list(page), []);
  });
}

test('a server that never sends the rest fails with the numbers, and what came is kept', async t => {
  const page = await there.tab(await there.context(t));
  // Every answer ends before what is asked for anew does, so that there is no progress after the first.
  const url = there.server.serve('/short.gguf', data, { cut: 60_000 });
  const { code, message } = await load(page, url);
  assert.equal(code, 'network');
  assert.match(message, /short\.gguf: the connection \w+ after [\d.]+ kB of 3\.0 MB/);
  const tries = there.server.starts('/short.gguf').length;
  assert.ok(tries >= 6 && tries <= 9, `${tries} tries`);
  const [{ have }] = await list(page);
  assert.ok(have > 0 && have <= 60_000, `${have} bytes`);
});

test('a file that changed since the download was cut starts over', async t => {
  const other = bytes(3_000_000, 2);
  const longer = bytes(4_000_000, 3);
  const shorter = bytes(500_000, 4);
  const changes = { etag: [other, {}], 'contents alone': [other, { etag: '"same"' }], size: [longer, { etag: null }], 'size, to less': [shorter, { etag: null }] };
  for (const [what, [then, how]] of Object.entries(changes)) {
    const page = await there.tab(await there.context(t));
    const path = `/changed-${encodeURIComponent(what)}.gguf`;
    const url = there.server.serve(path, data, { ...how, hang: 1_500_000 });
    await page.evaluate(async url => {
      const controller = new AbortController();
      const loading = Selkie.load(url, { signal: controller.signal, onProgress: ({ loaded }) => loaded > 1_000_000 && controller.abort() });
      await outcome(loading);
      await pause(300);
    }, url);
    assert.ok((await list(page))[0].have > 1_000_000);
    there.server.serve(path, then, how);
    const { value, message } = await load(page, url);
    assert.equal(value?.id, idOf(then), `${what}: ${message}`);
  }
});

test('a file that changes while it is being loaded is refused, and the next load gets the new one', async t => {
  const page = await there.tab(await there.context(t));
  const other = bytes(3_000_000, 2);
  const url = there.server.serve('/changing.gguf', data, { hang: 1_500_000 });
  await page.evaluate(url => new Promise(resolve => {
    globalThis.info = loadInfo(url, { onProgress: ({ loaded }) => loaded > 1_000_000 && resolve() });
  }), url);
  there.server.serve('/changing.gguf', other);
  there.server.drop();
  const { code, message } = await page.evaluate(() => info);
  assert.equal(code, 'file', message);
  assert.match(message, /changing\.gguf changed on the server/);
  const { value, message: again } = await load(page, url);
  assert.equal(value?.id, idOf(other), again);
});

test('a download that does not fit is refused before it begins, with the numbers', async t => {
  const prologue = 'StorageManager.prototype.estimate = async () => ({ quota: 5_000_000, usage: 4_000_000 });';
  const page = await there.tab(await there.context(t), { prologue });
  const url = there.server.serve('/large.gguf', data, { hang: 100_000 });
  const { code, message } = await load(page, url);
  assert.equal(code, 'storage');
  assert.match(message, /large\.gguf needs 3\.0 MB of the browser's storage, of which 1\.0 MB are left \(4\.0 MB of 5\.0 MB are used\)/);
  assert.deepEqual(await list(page), []);
  there.server.files.get('/large.gguf').hang = undefined;
  assert.equal((await load(page, url, { keep: false })).value?.id, idOf(data));
});

test('a disk that fills up in the middle', async t => {
  const prologue = `{
    const { write } = FileSystemSyncAccessHandle.prototype;
    FileSystemSyncAccessHandle.prototype.write = function (data, options) {
      if (options.at > 1_000_000) throw new DOMException('full', 'QuotaExceededError');
      return write.call(this, data, options);
    };
  }`;
  const page = await there.tab(await there.context(t), { prologue });
  const url = there.server.serve('/full.gguf', data);
  const { code, message } = await load(page, url);
  assert.equal(code, 'storage');
  assert.match(message, /full\.gguf: no room for more after \d\.\d MB of 3\.0 MB/);
});

test('a model that the engine refuses is not fetched to its end, and not kept', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/refused.gguf', data, { rate: 300_000 });
  const { code, time } = await load(page, url, { memory: 1000 });
  assert.equal(code, 'out-of-memory');
  assert.ok(time < 5000, `${time} ms`);
  assert.deepEqual(await list(page), []);
});

test('a kept file that was damaged or cleared behind our back is fetched again', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/cleared.gguf', data);
  await load(page, url);
  await page.evaluate(async () => {
    const root = await navigator.storage.getDirectory();
    const folder = await (await root.getDirectoryHandle('selkie')).getDirectoryHandle('cleared');
    const file = await (await folder.getFileHandle('cleared.gguf')).createWritable();
    await file.truncate(1000);
    await file.close();
  });
  const { value, message } = await load(page, url);
  assert.equal(value?.id, idOf(data), message);
});

test('notes that cannot be read count as none', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/notes.gguf', data);
  await load(page, url);
  await page.evaluate(async () => {
    const root = await navigator.storage.getDirectory();
    const folder = await (await root.getDirectoryHandle('selkie')).getDirectoryHandle('notes');
    const file = await (await folder.getFileHandle('notes.gguf.part.json')).createWritable();
    await file.write('{"size":30000');
    await file.close();
  });
  const { value, message } = await load(page, url);
  assert.equal(value?.id, idOf(data), message);
});
