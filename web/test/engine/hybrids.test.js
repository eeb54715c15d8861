// Hybrids of the first prototype, held to what its package computed.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { crc32 } from 'node:zlib';
import { setup } from '../support/browser.js';
import { readTensors } from '../support/safetensors.js';
import { fixture, largest, serveFixture } from './support.js';

const there = setup({ folder: 'dist' });

test('hybrids give the recorded logits', async t => {
  const page = await there.tab(await there.context(t));
  for (const name of ['m1-init', 'hy-jamba', 'hy-all-batch2', 'm3-groups2-mimo2-batch2']) {
    const { ids, ...tensors } = readTensors(fixture(`mbjs/${name}/expected.safetensors`));
    const { batch, seqLen } = JSON.parse(readFileSync(fixture(`mbjs/${name}/config.json`), 'utf8'));
    const url = serveFixture(there.server, `mbjs/${name}/model.mbjs`, `mbjs/${name}/config.json`);
    const { logits, embedding, is } = await page.evaluate(async ([url, ids, batch, seqLen]) => {
      const hybrid = await Selkie.load(url, { device: 'cpu', exact: true });
      const [logits, embedding] = [await hybrid.forward(ids, batch, seqLen), await hybrid.embed(ids.slice(0, seqLen))];
      hybrid.dispose();
      return { logits: [...logits], embedding: [...embedding], is: hybrid instanceof Hybrid };
    }, [url, ids, batch, seqLen]);
    assert.ok(is);
    assert.ok(largest(logits, tensors['logits.reference']) < 2e-4, name);
    assert.ok(largest(embedding, tensors['embed.reference']) < 2e-5, name);
  }
});

test('a seed gives the weights that it gave in the first prototype, which go out and in', async t => {
  const page = await there.tab(await there.context(t));
  const { model, seed, seeded_init: expected } = JSON.parse(readFileSync(fixture('mbjs/m2-init/config.json'), 'utf8'));
  const made = await page.evaluate(async config => {
    const hybrid = await Selkie.create(config, { device: 'cpu' });
    const [file, whole] = [await hybrid.export({ trailer: false }), await hybrid.export()];
    const parameters = await hybrid.parameters();
    const ids = [14, 38, 13, 16];
    const before = [...await hybrid.forward(ids, 1, 4)];
    const other = await Selkie.create({ ...config, seed: config.seed + 1 }, { device: 'cpu' });
    const different = [...await other.forward(ids, 1, 4)];
    await other.import(file);
    const after = [...await other.forward(ids, 1, 4)];
    const greedy = [[...await hybrid.generate(ids, 5, { temperature: 0 })], [...await other.generate(ids, 5, { temperature: 0 })]];
    const wrong = await outcome(other.import(file.slice(0, 100)));
    const sizes = parameters.every(({ shape, values }) => values.length === shape.reduce((a, b) => a * b, 1));
    const names = parameters.map(({ name }) => name);
    return { file: [...file], whole: [...whole], names, sizes, before, different, after, greedy, wrong };
  }, { ...model, seed });
  assert.equal(crc32(Uint8Array.from(made.file)), expected.crc32);
  assert.ok(readFileSync(fixture('mbjs/m2-init/model.mbjs')).equals(Buffer.from(made.whole)), 'the file is that of the first prototype');
  assert.ok(made.sizes && made.names.includes('embedding'));
  assert.notDeepEqual(made.different, made.before);
  assert.deepEqual(made.after, made.before);
  assert.deepEqual(made.greedy[0], made.greedy[1]);
  assert.equal(made.greedy[0].length, 9);
  assert.equal(made.wrong.code, 'file');
});
