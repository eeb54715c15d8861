// Runs the tests in Chromium: the loader's and the page's with a stand-in for the wasm modules, and the engine's, which want the
// package in dist/. `npm test -- NAME` runs the files whose names contain NAME; `--loader-only` leaves the engine's out.

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { run as runTests } from 'node:test';
import { spec } from 'node:test/reporters';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('..', import.meta.url));
const LOADER_ONLY = '--loader-only';
const args = process.argv.slice(2);
const names = args.filter(arg => arg !== LOADER_ONLY);
const withEngine = !args.includes(LOADER_ONLY);

const missing = ['index.js', 'worker.js', 'selkie.wasm', 'selkie-relaxed.wasm'].filter(file => !existsSync(join(web, 'dist', file)));
if (withEngine && missing.length > 0) {
  console.error(`The engine cannot be tested: dist/ lacks ${missing.join(', ')}. Build the wasm modules (see web/README.md) and run`);
  console.error(`\`npm run build\`, or \`npm test -- ${LOADER_ONLY}\` for what needs no engine.`);
  process.exit(1);
}
const newest = (...folders) => Math.max(...folders.flatMap(folder => readdirSync(join(web, folder), { recursive: true })
  .map(file => statSync(join(web, folder, file)).mtimeMs)));
if (withEngine && newest('src', 'app/src', 'wasm') > statSync(join(web, 'dist/worker.js')).mtimeMs) {
  console.error('dist/ is older than what it is built from: run `npm run build`.');
  process.exit(1);
}

function run(args, env = {}) {
  const { status } = spawnSync(process.execPath, args, { cwd: web, stdio: 'inherit', env: { ...process.env, ...env } });
  if (status !== 0) process.exit(status ?? 1);
}

function testsIn(folder) {
  return readdirSync(join(web, folder))
    .filter(file => file.endsWith('.test.js') && (names.length === 0 || names.some(name => file.includes(name))))
    .map(file => join(folder, file));
}

const build = 'test/build';
rmSync(join(web, build), { recursive: true, force: true });
for (const entry of ['index', 'worker']) {
  run(['node_modules/vite/bin/vite.js', 'build', '--logLevel', 'warn', '--mode', entry], { SELKIE_FAKE: '1', SELKIE_OUT: build });
}
run(['node_modules/vite/bin/vite.js', 'build', '--logLevel', 'warn', '--outDir', '../test/build/app'], { SELKIE_FAKE: '1' });
// The longest first, which `node --test` would sort: the others run beside it.
const files = [...(withEngine ? testsIn('test/engine').reverse() : []), ...testsIn('test/loader'), ...testsIn('app/test')];
if (files.length === 0) {
  console.error(`No file's name contains ${names.join(' or ')}.`);
  process.exit(1);
}
runTests({ files: files.map(file => join(web, file)), concurrency: 2 })
  .on('test:fail', () => { process.exitCode = 1; })
  .compose(new spec())
  .pipe(process.stdout);
