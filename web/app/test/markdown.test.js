// The page's Markdown: what it makes of a text, that a text which grows ends as the same, and that none is slow.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { build } from 'vite';

let browser;
let page;

before(async () => {
  const entry = fileURLToPath(new URL('../src/markdown/stream.ts', import.meta.url));
  const [{ output }] = await build({
    configFile: false,
    logLevel: 'error',
    build: { write: false, lib: { entry, name: 'markdown', formats: ['iife'] } },
  });
  browser = await chromium.launch({ executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  page = await browser.newPage();
  await page.setContent('<!doctype html>');
  await page.addScriptTag({ content: output[0].code });
  await page.evaluate(() => {
    globalThis.html = text => {
      const stream = new markdown.MarkdownStream();
      stream.show(text);
      return stream.element.innerHTML;
    };
  });
});

after(() => browser?.close());

const cases = [
  ['**a *b* c** __d__ snake_case_x 2 * 3', '<p><strong>a <em>b</em> c</strong> <strong>d</strong> snake_case_x 2 * 3</p>'],
  ['~~gone~~ ~5 `` a`b ``', '<p><del>gone</del> ~5 <code>a`b</code></p>'],
  ['# One\n## Two ##', '<h3 class="md-h1">One</h3><h4 class="md-h2">Two</h4>'],
  ['1. a\n2. b\n   - c', '<ol><li>a</li><li>b<ul><li>c</li></ul></li></ol>'],
  ['3) a\n\n4) b', '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>'],
  ['> a\n> b', '<blockquote><p>a\nb</p></blockquote>'],
  ['<b>x</b> &amp;', '<p>&lt;b&gt;x&lt;/b&gt; &amp;amp;</p>'],
  ['a  \nb\\\nc', '<p>a<br>b<br>c</p>'],
  ['[j](javascript:alert(1)) [d](data:text/html,x)', '<p>[j](javascript:alert(1)) [d](data:text/html,x)</p>'],
  [
    'https://a.b/c(d). <mailto:x@y.z>',
    '<p><a href="https://a.b/c(d)" target="_blank" rel="noopener noreferrer">https://a.b/c(d)</a>. ' +
      '<a href="mailto:x@y.z" target="_blank" rel="noopener noreferrer">mailto:x@y.z</a></p>',
  ],
  ['![pic](https://a.b/c.png)', '<p><a href="https://a.b/c.png" target="_blank" rel="noopener noreferrer">pic</a></p>'],
];

test('texts become these elements', async () => {
  for (const [text, wanted] of cases) assert.equal(await page.evaluate(text => html(text), text), wanted);
});

test('tables and code keep what is theirs', async () => {
  const found = await page.evaluate(() => {
    const stream = new markdown.MarkdownStream();
    stream.show('| a | b |\n|:-|-:|\n| `x|y` | c \\| d |\n| only |\n\n```js\nlet a = "<b>";\n\n# no heading\n');
    const { element } = stream;
    const cells = [...element.querySelectorAll('th, td')].map(cell => `${cell.className} ${cell.textContent}`.trim());
    return { cells, code: element.querySelector('pre').textContent, caption: element.querySelector('figcaption').textContent };
  });
  assert.deepEqual(found.cells, ['align-left a', 'align-right b', 'align-left x|y', 'align-right c | d', 'align-left only', 'align-right']);
  assert.equal(found.code, 'let a = "<b>";\n\n# no heading\n');
  assert.equal(found.caption, 'js');
});

test('a text that grows ends as it would have come at once', async () => {
  const wrong = await page.evaluate(() => {
    const parts = [
      '# h\n', '\n', '\n\n', 'text ', '**bold** ', '*it* ', '`code` ', '- item\n', '  - sub\n', '1. one\n', '2) two\n', '   more\n',
      '> quote\n', '```js\n', '```\n', '~~~\n', '| a | b |\n', '|---|:-:|\n', '| 1 | 2 |\n', '---\n', '[l](https://x.org) ', '<b>x</b> ',
      'https://a.b/c ', '~~del~~ ', '  \n', '- [x] t\n', '***both*** ', '|', '*', '_', '`', '[',
    ];
    // A linear congruential generator: the same texts each time.
    let seed = 1;
    const next = below => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % below;
    const wrong = [];
    for (let round = 0; round < 500; round += 1) {
      const text = Array.from({ length: 1 + next(30) }, () => parts[next(parts.length)]).join('');
      const stream = new markdown.MarkdownStream();
      for (let at = 0; at < text.length; at += 1 + next(5)) stream.show(text.slice(0, at), true);
      stream.show(text);
      if (stream.element.innerHTML !== html(text)) wrong.push(text);
    }
    return wrong;
  });
  assert.deepEqual(wrong, []);
});

test('no text takes long', async () => {
  const repeated = ['*', ' a*b', '**a ', '*_a_ **', '[', '[a](', '`', '> ', '- ', '- a\n', '|a', '<', 'http://', '~~a', '1. a\n\n'];
  for (const part of repeated) {
    const took = await page.evaluate(part => {
      const began = performance.now();
      html(part.repeat(10_000 / part.length));
      return performance.now() - began;
    }, part);
    assert.ok(took < 2000, `${JSON.stringify(part)} took ${took} ms`);
  }
});
