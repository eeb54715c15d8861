// States: kept over a reload, forked, and looked at.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setup } from '../support/browser.js';
import { serveFixture } from './support.js';

const there = setup({ folder: 'dist' });

test('saved, reloaded and continued as if nothing had happened', async t => {
  const context = await there.context(t);
  for (const name of ['llama-gqa/model.gguf', 'falcon-h1/model.gguf']) {
    const page = await there.tab(context);
    const url = serveFixture(there.server, `hf/${name}`);
    const prompt = [5, 77, 130, 9, 201, 33];
    const { whole, first, file } = await page.evaluate(async ([url, prompt]) => {
      const model = await Selkie.load(url, { device: 'cpu', exact: true });
      const say = (maxTokens, state) => model.complete(prompt, { maxTokens, ignoreEos: true, state });
      const whole = [...(await say(16, await model.newState())).ids];
      const first = [...(await say(8)).ids];
      return { whole, first, file: [...await model.state.save({ first })] };
    }, [url, prompt]);
    assert.deepEqual(first, whole.slice(0, 8));
    await page.close();

    const next = await there.tab(context);
    const { text, result } = await next.evaluate(async ([url, prompt, first, file]) => {
      const model = await Selkie.load(url, { device: 'cpu', exact: true });
      const text = await model.state.load(Uint8Array.from(file));
      const result = await model.complete([...prompt, ...first], { maxTokens: 8, ignoreEos: true });
      return { text, result: { ...result, ids: [...result.ids] } };
    }, [url, prompt, first, file]);
    assert.deepEqual(text, { first });
    assert.deepEqual(result.ids, whole.slice(8));
    // The last token was never read: nobody had asked for what follows it.
    assert.ok(result.cachedTokens >= prompt.length + first.length - 1, `${result.cachedTokens} tokens were held`);
    await next.close();
  }
});

test('forks do not touch each other', async t => {
  const page = await there.tab(await there.context(t));
  const url = serveFixture(there.server, 'hf/mamba2-g1/model-q8_0.gguf');
  const { one, two, lengths, planes } = await page.evaluate(async url => {
    const model = await Selkie.load(url, { device: 'cpu', exact: true });
    const say = async (prompt, state) => [...(await model.complete(prompt, { maxTokens: 6, ignoreEos: true, state })).ids];
    const prompt = [5, 77, 130, 9];
    await model.complete(prompt, { maxTokens: 1 });
    const fork = await model.state.fork();
    const one = await say([...prompt, 7, 8], model.state);
    const two = await say([...prompt, 7, 8], fork);
    const planes = await fork.planes();
    const lengths = [await fork.length(), await model.state.length()];
    await fork.clear();
    return { one, two, lengths: [...lengths, await fork.length(), await model.state.length()], planes };
  }, url);
  assert.deepEqual(one, two);
  assert.equal(lengths[0], lengths[1]);
  assert.deepEqual([lengths[2], lengths[3]], [0, lengths[1]]);
  assert.ok(planes.length > 0);
  for (const { shape, values } of planes) {
    assert.equal(Object.keys(values).length, shape.reduce((a, b) => a * b, 1));
    assert.ok(Object.values(values).some(value => value !== 0));
  }
});

test('a state of another model is refused, and the old one stays', async t => {
  const page = await there.tab(await there.context(t));
  const urls = ['hf/llama-gqa/model.gguf', 'hf/mamba2-g1/model.gguf'].map(path => serveFixture(there.server, path));
  const { code, length } = await page.evaluate(async urls => {
    const [one, two] = [await Selkie.load(urls[0], { device: 'cpu' }), await Selkie.load(urls[1], { device: 'cpu' })];
    await one.complete([1, 2, 3], { maxTokens: 2 });
    await two.complete([1, 2, 3], { maxTokens: 2 });
    const before = await two.state.length();
    const { code } = await outcome(two.state.load(await one.state.save()));
    return { code, length: await two.state.length() - before };
  }, urls);
  assert.equal(code, 'file');
  assert.equal(length, 0);
});
