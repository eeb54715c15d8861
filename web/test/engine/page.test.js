// The page with the engine, on the CPU.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ask, setup } from '../../app/test/support.js';
import { fixture } from './support.js';

const there = setup('dist/app');
const ready = page => page.locator('#model-chip[data-kind=ready]').waitFor();

/** A tab in which a model of fixtures/hf is open. */
async function opened(t, name) {
  const path = `${name}.gguf`;
  there.models.set(path, { data: readFileSync(fixture(`hf/${name}/model.gguf`)) });
  const page = await there.open(await there.context(t), `/?model=/models/${path}`);
  await ready(page);
  return page;
}

test('a model without a template continues a text; after a reload the conversation goes on with its state', async t => {
  const page = await opened(t, 'llama-gqa');
  assert.equal(await page.locator('.hero').innerText().then(text => text.includes('no chat template')), true);
  await page.evaluate(() => (location.hash = '#/settings'));
  await page.locator('label:has-text("Temperature")').first().waitFor();
  for (const [name, value] of [['Temperature', '0'], ['Longest answer', '12']]) {
    const field = page.locator('.view-settings').getByLabel(name).last();
    await field.fill(value);
    await field.press('Tab');
  }
  await page.evaluate(() => (location.hash = '#/chat'));
  await ask(page, 'Seals in');
  const first = await page.locator('.figures').last().innerText();
  assert.match(first, /^12 tokens .* (\d+) of \1 prompt tokens were new$/);
  // The state is kept once it is quiet.
  await page.waitForTimeout(1600);
  await page.reload();
  await page.locator('#conversations .title').click();
  await ready(page);
  await ask(page, 'and');
  const [, fresh, of] = /(\d+) of (\d+) prompt tokens were new/.exec(await page.locator('.figures').last().innerText());
  assert.ok(Number(fresh) < Number(of) - 5, `${fresh} of ${of} were new: the state came back`);
  assert.deepEqual(page.faults, []);
});

test('kernels and a matrix are checked', async t => {
  const page = await opened(t, 'llama-gqa');
  await page.evaluate(() => (location.hash = '#/conformance'));
  await page.click('#self-test');
  await page.locator('#checks tbody tr').first().waitFor();
  await page.click('#check-matrix');
  await page.locator('#checks').getByText(await page.inputValue('#matrix')).first().waitFor();
  assert.equal(await page.locator('#checks tr.wrong').count(), 0);
  assert.ok(await page.locator('#checks tbody tr').count() >= 4);
  assert.deepEqual(page.faults, []);
});

test('a recurrent state is drawn, and a hybrid of one\'s own runs', async t => {
  const page = await opened(t, 'mamba');
  await ask(page, 'Seals');
  await page.evaluate(() => (location.hash = '#/state'));
  await page.locator('#heat-map').waitFor();
  assert.ok(await page.locator('#state-layer option').count() > 1);
  await page.evaluate(() => (location.hash = '#/lab'));
  await page.click('#create-hybrid');
  await page.locator('#lab-generate').click();
  await page.locator('#lab-result .ids').waitFor();
  await page.click('#lab-forward');
  await page.locator('#lab-result table').waitFor();
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('#lab-export')]);
  assert.equal(readFileSync(await file.path()).subarray(0, 4).toString(), 'SJBM');
  assert.deepEqual(page.faults, []);
});
