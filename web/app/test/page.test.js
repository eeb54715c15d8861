// The page in Chromium, with the stand-in for the wasm modules: what a visitor does, and what comes of it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ask, model, setup } from './support.js';

const there = setup();
const ready = page => page.locator('#model-chip[data-kind=ready]').waitFor();

/** A tab in which a model from an address is open. */
async function opened(t, { name = 'small.gguf', options = {} } = {}) {
  there.models.set(name, { data: model() });
  const context = await there.context(t, options);
  const page = await there.open(context, `/?model=/models/${name}`);
  await ready(page);
  return { page, context };
}

test('a question is answered, edited, answered anew and stopped', async t => {
  const { page } = await opened(t);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'question');
  await ask(page, 'one');
  await ask(page, 'two');
  assert.equal(await page.locator('.turn').count(), 4);

  await page.locator('.turn.user').first().hover();
  await page.getByLabel('Edit this question').first().click();
  await page.getByLabel('Edit the question').fill('three');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelectorAll('.turn').length === 2);
  await page.locator('.turn.assistant .figures').filter({ hasText: 'tokens' }).waitFor();
  assert.equal(await page.locator('.bubble').innerText(), 'three');

  await page.getByLabel('Answer anew').click();
  await page.locator('.turn.assistant[aria-busy=true]').waitFor();
  await page.locator('.turn.assistant .md > *').first().waitFor();
  await page.keyboard.press('Escape');
  await page.locator('.turn-note').getByText('Stopped').waitFor();
  assert.equal(await page.locator('.turn').count(), 2);
  assert.deepEqual(page.faults, []);
});

test('what a model writes does not become HTML', async t => {
  const { page } = await opened(t);
  await ask(page, '<img src=x onerror=alert(1)> [x](javascript:alert(1))');
  const bad = '.turn :is(script, img, iframe, [onerror], [onclick], a:not([href^="http"], [href^="mailto:"]))';
  assert.equal(await page.locator(bad).count(), 0);
  assert.ok((await page.locator('.md').innerText()).includes('<img src=x'), 'it is shown as it was written');
  assert.deepEqual(page.faults, []);
});

test('conversations outlive the tab, and go from one browser to another', async t => {
  const { page, context } = await opened(t);
  await ask(page, 'Remember me');
  await page.locator('#conversations .more').click();
  await page.getByRole('button', { name: 'Rename' }).click();
  await page.getByLabel('Title').fill('A talk');
  await page.keyboard.press('Enter');
  await page.locator('#conversations .title').getByText('A talk').waitFor();
  // The state is kept once it is quiet.
  await page.waitForTimeout(1600);

  await page.reload();
  await page.locator('#conversations .title').click();
  assert.equal(await page.locator('.turn').count(), 2);
  await ready(page);
  await ask(page, 'Go on');
  const fresh = /(\d+) of (\d+) prompt tokens were new/.exec(await page.locator('.figures').last().innerText());
  assert.ok(Number(fresh[1]) < Number(fresh[2]), `the state came back: ${fresh[0]}`);
  await page.waitForTimeout(1600);

  await page.goto(`${there.origin}/#/settings`);
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('#export-all')]);
  const path = await file.path();
  assert.equal(readFileSync(path).subarray(0, 8).toString(), 'SELKIEC1');

  const other = await there.open(await there.context(t), '/#/settings');
  await other.setInputFiles('#import-conversations', { name: 'a.selkie', mimeType: '', buffer: readFileSync(path) });
  await other.locator('#conversations .title').getByText('A talk').waitFor();
  await other.setInputFiles('#import-conversations', { name: 'b.selkie', mimeType: '', buffer: Buffer.from('no') });
  await other.locator('.notice.error').waitFor();
  assert.equal(await other.locator('#conversations .title').count(), 1);
  assert.deepEqual([...page.faults, ...other.faults], []);
  await context.close();
});

test('a download shows how far it is, is cancelled, and goes on', async t => {
  there.models.set('slow.gguf', { data: model(2_000_000), rate: 1_000_000 });
  const page = await there.open(await there.context(t), '/?model=/models/slow.gguf');
  await page.locator('.loading-figures').getByText(/kB of 2\.00 MB · .*\/s · \d+ s left/).first().waitFor();
  await page.click('#cancel-load');
  await page.locator('#model-chip[data-kind=none]').waitFor();
  await page.goto(`${there.origin}/#/models`);
  await page.locator('.model').getByText('are here').waitFor();
  await page.locator('.model .open').first().click();
  await ready(page);
});

test('a file that is dropped or chosen opens, and one that is none says so', async t => {
  const page = await there.open(await there.context(t));
  await page.setInputFiles('#open-files', { name: 'a.gguf', mimeType: '', buffer: Buffer.from('no model at all') });
  await page.locator('#model-chip[data-kind=failed]').waitFor();
  assert.match(await page.locator('.loading-error').first().innerText(), /choose another|another file|of a family/i);
  const bytes = [...model(5000)];
  await page.evaluate(bytes => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([Uint8Array.from(bytes)], 'dropped.gguf'));
    dispatchEvent(new DragEvent('drop', { dataTransfer, cancelable: true }));
  }, bytes);
  await ready(page);
  assert.deepEqual(page.faults, []);
});

test('after the first visit the page, its model and a conversation need no network', async t => {
  const { page, context } = await opened(t);
  await page.evaluate(() => navigator.serviceWorker.ready);
  await context.setOffline(true);
  await page.goto(`${there.origin}/`);
  await page.locator('.model[data-source^="stored:"] .open').click();
  await ready(page);
  await ask(page, 'Still there?');
  assert.deepEqual(page.faults, []);
});

test('all views fit on a phone, by light and by dark', async t => {
  for (const colorScheme of ['light', 'dark']) {
    const { page } = await opened(t, { options: { viewport: { width: 320, height: 640 }, hasTouch: true, colorScheme } });
    await ask(page, 'one');
    for (const view of ['chat', 'models', 'settings', 'conformance', 'state', 'lab']) {
      await page.evaluate(view => (location.hash = `#/${view}`), view);
      await page.locator(`.view-${view}`).waitFor();
      const beyond = await page.evaluate(() => document.querySelector('.view:not([hidden])').scrollWidth - innerWidth);
      assert.ok(beyond <= 0, `${view} is ${beyond} pixels too wide`);
    }
    await page.click('#menu');
    await page.locator('#sidebar a').getByText('Chat').click();
    assert.equal(await page.evaluate(() => document.getElementById('sidebar').inert), true);
    assert.deepEqual(page.faults, []);
  }
});

test('the kernels and a matrix are checked, and the report is copied', async t => {
  const { page, context } = await opened(t);
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.goto(`${there.origin}/?model=/models/small.gguf#/conformance`);
  await ready(page);
  await page.click('#self-test');
  await page.locator('#checks tbody tr').first().waitFor();
  await page.click('#check-matrix');
  const matrix = await page.inputValue('#matrix');
  await page.locator('#checks').getByText(matrix).first().waitFor();
  await page.click('#copy-report');
  const report = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(report.startsWith('Selkie conformance') && report.includes(matrix) && report.includes('Browser:'), report);
});

test('a hybrid is made of its configuration, run, and written', async t => {
  const page = await there.open(await there.context(t), '/#/lab');
  await page.click('#create-hybrid');
  await page.locator('#lab-generate').click();
  await page.locator('#lab-result .ids').waitFor();
  await page.fill('#lab-ids', '1, 999999');
  await page.click('#lab-forward');
  await page.locator('#lab-ids[aria-invalid=true]').waitFor();
  await page.fill('#lab-ids', '1, 2');
  await page.click('#lab-forward');
  await page.locator('#lab-result table').waitFor();
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('#lab-export')]);
  assert.equal(file.suggestedFilename(), 'model.mbjs');
  assert.deepEqual(page.faults, []);
});
