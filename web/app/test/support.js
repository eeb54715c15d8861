// The built page behind a small server, and a Chromium to use it with.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const web = fileURLToPath(new URL('../..', import.meta.url));
/** Where scripts/test.js puts the page, built with the stand-in for the wasm modules. */
const PRETENCE = 'test/build/app';

const types = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
  '.webmanifest': 'application/manifest+json',
};

const flags = ['--no-sandbox', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-sync'];

/** Answers `/models/NAME` with `models.get(NAME)`, slowly where it says so, and else with the page, which lies in `folder` below web/. */
export function setup(folder = PRETENCE) {
  const there = { origin: '', browser: null, models: new Map(), open, context };
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://page');
    const model = there.models.get(pathname.replace('/models/', ''));
    if (model) void send(model, request, response);
    else own(join(web, folder), pathname, response);
  });
  before(async () => {
    await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
    there.origin = `http://127.0.0.1:${server.address().port}`;
    const executablePath = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
    there.browser = await chromium.launch({ executablePath, headless: true, args: flags });
  });
  after(async () => {
    await there.browser?.close();
    server.closeAllConnections();
    await new Promise(resolve => server.close(resolve));
  });

  async function context(t, options = {}) {
    const made = await there.browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
    t.after(() => made.close());
    return made;
  }

  /** A tab with the page in it. What the page throws or complains of ends up in `page.faults`. */
  async function open(context, address = '/') {
    const page = await context.newPage();
    page.faults = [];
    page.on('pageerror', error => page.faults.push(String(error)));
    page.on('console', message => message.type() === 'error' && page.faults.push(message.text()));
    await page.goto(there.origin + address);
    return page;
  }

  return there;
}

/** Bytes that look like a GGUF file from outside: the stand-in asks for no more. */
export function model(size = 300_000) {
  const data = Buffer.alloc(size, 7);
  data.write('GGUF', 0, 'latin1');
  return data;
}

/** Asks, and waits for the whole answer. */
export async function ask(page, question) {
  const before = await page.locator('.turn').count();
  await page.fill('#question', question);
  await page.keyboard.press('Enter');
  await page.locator(`.turn:nth-child(${before + 2}) .figures`).filter({ hasText: 'tokens' }).waitFor();
}

function own(built, pathname, response) {
  const file = pathname === '/' ? '/index.html' : pathname;
  let data;
  try {
    data = readFileSync(join(built, file));
  } catch {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { 'content-type': types[extname(file)] ?? 'application/octet-stream' }).end(data);
}

async function send({ data, rate = Infinity }, request, response) {
  const [, from] = /^bytes=(\d+)-/.exec(request.headers.range ?? '') ?? [];
  const start = Number(from ?? 0);
  const headers = { 'content-length': data.length - start, etag: '"1"', 'accept-ranges': 'bytes' };
  if (from !== undefined) headers['content-range'] = `bytes ${start}-${data.length - 1}/${data.length}`;
  response.writeHead(from === undefined ? 200 : 206, headers);
  const step = Math.min(data.length, Math.ceil(rate / 20));
  for (let at = start; at < data.length && !response.destroyed && request.method !== 'HEAD'; at += step) {
    response.write(data.subarray(at, at + step));
    if (rate !== Infinity) await new Promise(resolve => setTimeout(resolve, 50));
  }
  response.end();
}
