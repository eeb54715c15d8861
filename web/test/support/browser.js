// Debian's Chromium, driven by playwright-core.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { chromium } from 'playwright-core';
import { Server } from './server.js';

/**
 * Milliseconds in which a stop has to be heard here. The promise is 100 on a machine that does nothing else; a test only tells it from
 * work that runs to its end.
 */
export const SOON = 2000;

const flags = [
  '--no-sandbox', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
];
/** WebGPU in software, for machines without a GPU. */
const gpu = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];

/** A browser and a server for the tests of a file. `folder`: where the built package lies, below web/. */
export function setup({ folder, webgpu = false }) {
  const there = { server: null, browser: null, context, tab };
  before(async () => {
    there.server = await new Server().listen();
    // Where Debian puts it; CHROMIUM names another.
    const executablePath = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
    there.browser = await chromium.launch({ executablePath, headless: true, args: [...flags, ...(webgpu ? gpu : [])] });
  });
  after(async () => {
    await there.browser?.close();
    await there.server?.close();
  });

  /** A browser profile of its own, which forgets at the end of `t`. */
  async function context(t) {
    const context = await there.browser.newContext();
    t.after(() => context.close());
    return context;
  }

  /** A tab with the package in it, and with `outcome` for errors. `prologue`: code that its worker begins with. */
  async function tab(context, { prologue } = {}) {
    const { server } = there;
    const page = await context.newPage();
    const name = prologue === undefined ? null : `p${server.prologues.size}`;
    if (name) server.prologues.set(name, prologue);
    page.on('pageerror', error => assert.fail(error));
    await page.goto(server.origin);
    await page.evaluate(async path => {
      Object.assign(globalThis, await import(path));
      /** What became of a promise: `{ value }`, or the error's `{ code, message }`; and milliseconds. */
      globalThis.outcome = async promise => {
        const started = performance.now();
        const result = await promise.then(value => ({ value }), error => ({ code: error.code ?? null, message: `${error.message}` }));
        return { ...result, time: performance.now() - started };
      };
      globalThis.pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
      /** The quickest of up to three tries: where other programs want the processor, one may be late. */
      globalThis.quickest = async attempt => {
        let best;
        for (let i = 0; i < 3 && !(best?.time < 100); i += 1) {
          const result = await attempt();
          if (!(best?.time <= result.time)) best = result;
        }
        return best;
      };
      /** Cancels a text at the first event of a kind, and gives what came and how long it took. */
      globalThis.cancelAt = (model, event) => quickest(async () => {
        await model.state.clear();
        const controller = new AbortController();
        let cancelled = 0;
        const cancel = () => {
          cancelled ||= performance.now();
          controller.abort();
        };
        // A prompt that lasts, or a text that does.
        const ids = event === 'onPrompt' ? Array.from({ length: 3500 }, (_, i) => 3 + i % 50) : [5, 6, 7];
        const { finish, newTokens } = await model.complete(ids, { maxTokens: 3000, ignoreEos: true, signal: controller.signal, [event]: cancel });
        return { finish, newTokens, time: performance.now() - cancelled };
      });
      /** Cancels a load at the first progress that `when` agrees to, and gives the error's code and how long it took. */
      globalThis.cancelLoad = (source, options, when) => quickest(async () => {
        const controller = new AbortController();
        let cancelled = 0;
        const onProgress = progress => {
          if (cancelled || !when(progress)) return;
          cancelled = performance.now();
          controller.abort();
        };
        const { code } = await outcome(Selkie.load(source, { ...options, signal: controller.signal, onProgress }));
        return { code, time: performance.now() - cancelled };
      });
      /** Loads, and gives what the stand-in says of what it got. */
      globalThis.loadInfo = (source, options) => outcome(Selkie.load(source, options).then(model => {
        const { info } = model;
        model.dispose();
        return info;
      }));
    }, `/${name ? `with/${name}` : 'web'}/${folder}/index.js`);
    return page;
  }

  return there;
}
