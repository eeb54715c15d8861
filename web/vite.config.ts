import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Plugin, type UserConfig, defineConfig } from 'vite';
import { looseInDevelopment, precache } from './app/precache.js';

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));

/**
 * Where the wasm modules lie. `SELKIE_FAKE=1` puts one in their place that only pretends, for the loader's tests and for work on
 * the page; `vite dev` does so by itself where none have been built.
 */
function wasm(command: 'build' | 'serve'): Record<string, string> {
  const built = { base: path('wasm/base/selkie_web.js'), relaxed: path('wasm/relaxed/selkie_web.js') };
  const missing = Object.values(built).filter(file => !existsSync(file));
  const fake = Boolean(process.env['SELKIE_FAKE']) || (command === 'serve' && missing.length > 0);
  if (!fake && missing.length > 0) throw new Error(`not built yet: ${missing.join(', ')} (see web/README.md)`);
  if (fake && !process.env['SELKIE_FAKE']) console.warn('The wasm modules have not been built: answers are made up.');
  const pretence = path('test/fake/selkie_web.ts');
  return { 'selkie-wasm/base': fake ? pretence : built.base, 'selkie-wasm/relaxed': fake ? pretence : built.relaxed };
}

/** The addresses in the built package, which other bundlers look for in exactly this form. */
const files: [RegExp, string, string][] = [
  [/src\/connection\.ts$/, "new URL('./worker.ts', import.meta.url)", './worker.js'],
  [/wasm\/base\/selkie_web\.js$/, "new URL('selkie_web_bg.wasm', import.meta.url)", './selkie.wasm'],
  [/wasm\/relaxed\/selkie_web\.js$/, "new URL('selkie_web_bg.wasm', import.meta.url)", './selkie-relaxed.wasm'],
];

/** Keeps Vite from turning these files into text inside the code, which it does in libraries. */
function separateFiles(): Plugin {
  const hidden = (file: string) => `__SELKIE_FILE__(${JSON.stringify(file)})`;
  return {
    name: 'selkie-separate-files',
    enforce: 'pre',
    transform(code, id) {
      for (const [where, expression, file] of files) {
        if (!where.test(id)) continue;
        if (!code.includes(expression)) throw new Error(`${id} does not say ${expression}`);
        return { code: code.replaceAll(expression, hidden(file)), map: null };
      }
      return null;
    },
    renderChunk(code) {
      return { code: code.replace(/__SELKIE_FILE__\(["'`](.*?)["'`]\)/g, "new URL('$1', import.meta.url)"), map: null };
    },
  };
}

/** One file of the package, with all that it needs. The wasm files are copied by scripts/build.js. */
function library(entry: string): UserConfig {
  return {
    plugins: [separateFiles()],
    build: {
      outDir: process.env['SELKIE_OUT'] ?? path('dist'),
      emptyOutDir: false,
      target: 'es2022',
      minify: true,
      lib: { entry: { [entry]: path(`src/${entry}.ts`) }, formats: ['es'] },
      rolldownOptions: { output: { entryFileNames: '[name].js', codeSplitting: false } },
    },
  };
}

/** The chat page. */
function page(): UserConfig {
  return {
    root: path('app'),
    base: './',
    plugins: [looseInDevelopment(), precache()],
    worker: { format: 'es' },
    // Found late, it would reload the page.
    optimizeDeps: { include: ['hash-wasm'] },
    build: { outDir: path('dist/app'), emptyOutDir: true, target: 'es2022', assetsInlineLimit: 0, cssTarget: 'chrome123', modulePreload: { polyfill: false } },
    preview: { host: '127.0.0.1' },
    server: { host: '127.0.0.1', fs: { allow: [path('.')] } },
  };
}

export default defineConfig(({ command, mode }) => ({
  resolve: { alias: wasm(command) },
  ...(mode === 'index' || mode === 'worker' ? library(mode) : page()),
}));
