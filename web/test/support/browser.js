// Debian's Chromium, driven by playwright-core.

import { chromium } from 'playwright-core';

const flags = [
  '--no-sandbox', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
];
/** WebGPU in software, for machines without a GPU. */
const gpu = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];

/** Starts a browser; `CHROMIUM` names it. */
export function launch({ webgpu = false } = {}) {
  const executablePath = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
  return chromium.launch({ executablePath, headless: true, args: [...flags, ...(webgpu ? gpu : ['--disable-features=WebGPU'])] });
}

/** A page of `server` with `Selkie` of the package in `folder` in it, and functions that tests are written with. */
export async function open(context, server, folder) {
  const page = await context.newPage();
  page.on('pageerror', error => { throw error; });
  await page.goto(server.origin);
  await page.evaluate(async folder => {
    const module = await import(`/web/${folder}/index.js`);
    Object.assign(globalThis, module);
    /** The answer, or the error as `{ code, message }`. */
    globalThis.outcome = promise => promise.then(value => ({ value }), ({ code, message }) => ({ code, message }));
  }, folder);
  return page;
}
