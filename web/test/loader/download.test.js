// Downloads that go well, that are cut, and that go on.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SOON, setup } from '../support/browser.js';
import { bytes, idOf, sha256 } from '../support/data.js';

const there = setup({ folder: 'test/build' });
const data = bytes(5_000_000);

test('a model arrives whole, is kept with its hash, and is not fetched again', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/whole.gguf', data);
  const first = await page.evaluate(url => loadInfo(url), url);
  assert.equal(first.value?.id, idOf(data), first.message);
  const [stored] = await page.evaluate(() => Selkie.store.list());
  assert.deepEqual({ ...stored, used: 0 }, { name: 'whole', url, bytes: data.length, have: data.length, sha256: sha256(data), used: 0 });
  assert.ok(Math.abs(stored.used - Date.now()) < 60_000);

  there.server.files.delete('/whole.gguf');
  for (const source of [url, 'stored:whole']) {
    const again = await page.evaluate(source => loadInfo(source), source);
    assert.equal(again.value?.id, idOf(data), again.message);
  }
  assert.equal(there.server.starts('/whole.gguf').length, 1);
});

test('progress counts bytes, with a rate and the time left, and says what is stored', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/progress.gguf', data, { rate: 5_000_000 });
  const load = () => page.evaluate(async url => {
    const reports = [];
    (await Selkie.load(url, { onProgress: progress => reports.push(progress) })).dispose();
    return reports;
  }, url);
  const reports = await load();
  const downloads = reports.filter(({ stage }) => stage === 'download');
  assert.ok(downloads.length >= 5, `${downloads.length} reports`);
  for (const [i, { loaded, total, file, stored }] of downloads.entries()) {
    assert.ok(loaded >= (downloads[i - 1]?.loaded ?? 0));
    assert.deepEqual([total, file, stored], [data.length, 'progress.gguf', false]);
  }
  const late = downloads[Math.floor(downloads.length * 0.7)];
  assert.ok(late.bytesPerSecond > 2_000_000 && late.bytesPerSecond < 10_000_000, `${late.bytesPerSecond} bytes a second`);
  assert.ok(late.secondsLeft > 0 && late.secondsLeft < 2);
  const stages = [...new Set(reports.map(({ stage }) => stage))];
  assert.deepEqual(stages.filter(stage => stage !== 'load'), ['download', 'compile', 'ready']);
  const again = await load();
  assert.deepEqual([...new Set(again.map(({ stage }) => stage))], ['load', 'compile', 'ready']);
  assert.ok(again.every(({ stored }) => stored));
});

test('ranges that have arrived are read while the rest is on its way', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/streamed.gguf', data, { hang: 3_500_000 });
  const read = await page.evaluate(async url => {
    const channel = new BroadcastChannel('selkie-fake');
    const three = new Promise(resolve => { channel.onmessage = ({ data }) => data.read >= 3 << 20 && resolve(data.read); });
    globalThis.info = loadInfo(url);
    return three;
  }, url);
  assert.equal(read, 3 << 20);
  there.server.files.get('/streamed.gguf').hang = undefined;
  assert.equal((await page.evaluate(() => info)).value?.id, idOf(data));
});

test('a connection that breaks again and again does not stop it', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/cut.gguf', data, { cut: 2_000_000 });
  const { value, message } = await page.evaluate(url => loadInfo(url), url);
  assert.equal(value?.id, idOf(data), message);
  // What the browser held back when the connection broke is lost, so there may be more than three.
  const starts = there.server.starts('/cut.gguf');
  assert.ok(starts.length >= 3 && starts.length < 10, String(starts));
  assert.ok(starts.at(-1) >= 2_900_000, String(starts));
});

for (const keep of [true, false]) {
  test(`a server that is busy is asked again, keep: ${keep}`, async t => {
    const page = await there.tab(await there.context(t));
    const url = there.server.serve('/busy.gguf', data, { failures: 2 });
    const { value, message } = await page.evaluate(({ url, keep }) => loadInfo(url, { keep }), { url, keep });
    assert.equal(value?.id, idOf(data), message);
  });
}

test('cancelling is heard at once, keeps what has come, and the next load goes on', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/cancelled.gguf', data, { rate: 4_000_000 });
  const { code, time } = await page.evaluate(async url => {
    const controller = new AbortController();
    const loaded = Selkie.load(url, { signal: controller.signal, onProgress: ({ loaded }) => loaded > 1_500_000 && begun() });
    let begun;
    await new Promise(resolve => { begun = resolve; });
    controller.abort();
    return outcome(loaded);
  }, url);
  assert.equal(code, 'aborted');
  assert.ok(time < SOON, `${time} ms`);
  const [stored] = await page.evaluate(async () => {
    await pause(300);
    return Selkie.store.list();
  });
  assert.ok(stored.have >= 1_500_000 && stored.have < data.length, `${stored.have} bytes`);
  assert.deepEqual([stored.bytes, stored.sha256], [data.length, null]);

  const { value, message } = await page.evaluate(() => loadInfo('stored:cancelled'));
  assert.equal(value?.id, idOf(data), message);
  assert.ok(there.server.starts('/cancelled.gguf')[1] >= 1_400_000);
  const [complete] = await page.evaluate(() => Selkie.store.list());
  assert.equal(complete.sha256, sha256(data), 'the hash goes on, too');
});

test('a load that is cancelled before it begins fetches nothing', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/never.gguf', data);
  const { code } = await page.evaluate(url => loadInfo(url, { signal: AbortSignal.abort() }), url);
  assert.equal(code, 'aborted');
  await page.evaluate(() => pause(300));
  assert.deepEqual(await page.evaluate(() => Selkie.store.list()), []);
});

test('a tab that is closed in the middle leaves what the next one goes on with', async t => {
  const context = await there.context(t);
  const page = await there.tab(context);
  const url = there.server.serve('/closed.gguf', data, { rate: 1_000_000 });
  await page.evaluate(url => new Promise(resolve => {
    void Selkie.load(url, { onProgress: ({ loaded }) => loaded > 2_500_000 && resolve() });
  }), url);
  await page.close();
  there.server.files.get('/closed.gguf').rate = undefined;
  const next = await there.tab(context);
  const { value, message } = await next.evaluate(url => loadInfo(url), url);
  assert.equal(value?.id, idOf(data), message);
  assert.ok(there.server.starts('/closed.gguf')[1] > 1_000_000, String(there.server.starts('/closed.gguf')));
});

test('without ranges, a cut download is compared with what is there and goes on', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/noranges.gguf', data, { noRanges: true, hang: 3_000_000 });
  await page.evaluate(url => new Promise(resolve => {
    globalThis.info = loadInfo(url, { onProgress: ({ loaded }) => loaded > 2_000_000 && resolve() });
  }), url);
  there.server.files.get('/noranges.gguf').hang = undefined;
  there.server.drop();
  const { value, message } = await page.evaluate(() => info);
  assert.equal(value?.id, idOf(data), message);
  assert.equal(there.server.starts('/noranges.gguf').length, 2);
});

test('a server that does not say how much comes', async t => {
  const page = await there.tab(await there.context(t));
  const url = there.server.serve('/nolength.gguf', data, { noRanges: true, noLength: true });
  for (const keep of [true, false]) {
    const { value, message } = await page.evaluate(({ url, keep }) => loadInfo(url, { keep }), { url, keep });
    assert.equal(value?.id, idOf(data), message);
  }
});

for (const noRanges of [false, true]) {
  test(`nothing is kept where it is not wanted; ranges: ${!noRanges}`, async t => {
    const page = await there.tab(await there.context(t));
    const path = `/passing-${noRanges}.gguf`;
    const large = bytes(10_000_000);
    const url = there.server.serve(path, large, { noRanges });
    const { value, message } = await page.evaluate(url => loadInfo(url, { keep: false }), url);
    assert.equal(value?.id, idOf(large), message);
    assert.deepEqual(await page.evaluate(() => Selkie.store.list()), []);
    assert.equal(there.server.starts(path).length, noRanges ? 1 : 4);
  });
}

test('where the browser keeps no files, it is read from the server', async t => {
  const prologue = "StorageManager.prototype.getDirectory = () => Promise.reject(new DOMException('private', 'SecurityError'));";
  const page = await there.tab(await there.context(t), { prologue });
  const url = there.server.serve('/private.gguf', data);
  const { value, message } = await page.evaluate(url => loadInfo(url), url);
  assert.equal(value?.id, idOf(data), message);
  assert.deepEqual(await page.evaluate(() => Selkie.store.list()), []);
});
