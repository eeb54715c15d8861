// Two tabs, and what is stored.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setup } from '../support/browser.js';
import { bytes, idOf } from '../support/data.js';

const there = setup({ folder: 'test/build' });
const data = bytes(3_000_000);

test('two tabs that want the same model fetch it once', async t => {
  const context = await there.context(t);
  const [one, two] = [await there.tab(context), await there.tab(context)];
  const url = there.server.serve('/shared.gguf', data, { rate: 3_000_000 });
  const load = page => page.evaluate(url => {
    const loads = [];
    return loadInfo(url, { onProgress: ({ stage, loaded }) => stage === 'download' && loads.push(loaded) }).then(info => ({ ...info, loads }));
  }, url);
  const both = await Promise.all([load(one), load(two)]);
  for (const { value, message, loads } of both) {
    assert.equal(value?.id, idOf(data), message);
    assert.ok(loads.some(loaded => loaded > 500_000 && loaded < data.length), 'the one that waits sees how far it is');
  }
  assert.equal(there.server.starts('/shared.gguf').length, 1);
  assert.equal((await one.evaluate(() => Selkie.store.list())).length, 1);
});

for (const how of ['cancels', 'is closed']) {
  test(`where the first tab ${how}, the second goes on with what it has`, async t => {
    const context = await there.context(t);
    const [one, two] = [await there.tab(context), await there.tab(context)];
    const path = `/inherited-${how.replace(' ', '-')}.gguf`;
    const url = there.server.serve(path, data, { rate: 1_500_000 });
    await one.evaluate(url => new Promise(resolve => {
      globalThis.controller = new AbortController();
      Selkie.load(url, { signal: controller.signal, onProgress: ({ loaded }) => loaded > 500_000 && resolve() }).catch(() => undefined);
    }), url);
    const second = two.evaluate(url => loadInfo(url), url);
    // The second has to stand in line by then.
    await two.evaluate(() => pause(300));
    if (how === 'cancels') await one.evaluate(() => controller.abort());
    else await one.close();
    const { value, message } = await second;
    assert.equal(value?.id, idOf(data), message);
    const starts = there.server.starts(path);
    assert.equal(starts.length, 2);
    if (how === 'cancels') assert.ok(starts[1] > 0, String(starts));
  });
}

test('models are listed, the last used first, and deleted, but not while they are being loaded', async t => {
  const page = await there.tab(await there.context(t));
  const { server } = there;
  const urls = [server.serve('/a/one.gguf', data), server.serve('/b/one.gguf', bytes(100_000, 2)), server.serve('/org/two/resolve/main/model.gguf', bytes(100_000, 3))];
  for (const url of urls) await page.evaluate(url => loadInfo(url), url);
  const names = () => page.evaluate(async () => (await Selkie.store.list()).map(({ name }) => name));
  assert.deepEqual(await names(), ['two', 'one-2', 'one']);
  await page.evaluate(() => loadInfo('stored:one'));
  assert.deepEqual(await names(), ['one', 'two', 'one-2']);
  const { used, quota } = await page.evaluate(() => Selkie.store.usage());
  assert.ok(used >= 3_200_000 && quota > used, `${used} of ${quota}`);
  assert.equal(typeof await page.evaluate(() => Selkie.store.persist()), 'boolean');

  server.serve('/slow.gguf', data, { hang: 1_000_000 });
  const refused = await page.evaluate(async url => {
    const controller = new AbortController();
    let loading;
    await new Promise(resolve => { loading = outcome(Selkie.load(url, { signal: controller.signal, onProgress: ({ loaded }) => loaded > 500_000 && resolve() })); });
    const refused = await outcome(Selkie.store.delete('slow'));
    controller.abort();
    await loading;
    await pause(300);
    return refused;
  }, `${server.origin}/slow.gguf`);
  assert.equal(refused.code, 'storage');
  assert.match(refused.message, /slow is being loaded/);
  for (const name of ['slow', 'one', 'two']) await page.evaluate(name => Selkie.store.delete(name), name);
  assert.deepEqual(await names(), ['one-2']);
  assert.equal((await page.evaluate(() => outcome(Selkie.store.delete('one')))).code, 'not-found');
});
