// Runs the tests in Chromium: the loader's with a stand-in for the wasm modules, then, where these have been built, the engine's.
// `npm test -- NAME` runs the files whose names contain NAME.

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('..', import.meta.url));
const names = process.argv.slice(2);

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
const files = [...testsIn('test/loader'), ...testsIn('app/test')];
if (existsSync(join(web, 'test/engine')) && existsSync(join(web, 'dist/selkie.wasm'))) files.push(...testsIn('test/engine'));
run(['--test', '--test-concurrency=2', ...files]);
