// Builds the package into dist/ and the page into dist/app, and says what a visitor downloads.

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const web = fileURLToPath(new URL('..', import.meta.url));
const dist = join(web, 'dist');
/** Bytes, compressed, that one visitor of the page may have to download. */
const LIMIT = 2_500_000;

function run(tool, ...args) {
  const { status } = spawnSync(process.execPath, [join(web, 'node_modules', tool), ...args], { cwd: web, stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}

const tsc = (...args) => run('typescript/bin/tsc', ...args);
const vite = (...args) => run('vite/bin/vite.js', 'build', '--logLevel', 'warn', ...args);

function files(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => join(entry.parentPath, entry.name));
}

rmSync(dist, { recursive: true, force: true });
tsc('-p', 'tsconfig.json');
tsc('-p', 'tsconfig.worker.json');
tsc('-p', 'tsconfig.types.json');
// Node's and browsers' resolution, which TypeScript can be asked to follow, wants the whole file name.
for (const file of files(join(dist, 'types'))) {
  writeFileSync(file, readFileSync(file, 'utf8').replace(/((?:from |import\()["'])(\.\.?\/[^"']+)/g, '$1$2.js'));
}
vite('--mode', 'index');
vite('--mode', 'worker');
for (const [kind, name] of [['base', 'selkie.wasm'], ['relaxed', 'selkie-relaxed.wasm']]) {
  const built = join(web, 'wasm', kind, 'selkie_web_bg.wasm');
  if (existsSync(built)) cpSync(built, join(dist, name));
}
const app = join(dist, 'app');
if (existsSync(join(web, 'app', 'index.html'))) vite();

if (existsSync(app)) {
  const sizes = files(app).map(file => ({ name: relative(app, file), size: gzipSync(readFileSync(file), { level: 9 }).length }));
  // A browser fetches one of the two.
  const wasm = sizes.filter(({ name }) => name.endsWith('.wasm')).sort((a, b) => b.size - a.size);
  const total = sizes.reduce((sum, { size }) => sum + size, 0) - wasm.slice(1).reduce((sum, { size }) => sum + size, 0);
  console.log('\nWhat a visitor of the page downloads, compressed with gzip:');
  for (const { name, size } of sizes.sort((a, b) => b.size - a.size)) {
    const other = wasm.slice(1).some(file => file.name === name);
    console.log(`${size.toLocaleString('en').padStart(11)}  ${name}${other ? ' (not counted: a browser fetches one of the two)' : ''}`);
  }
  console.log(`${total.toLocaleString('en').padStart(11)}  of ${LIMIT.toLocaleString('en')} bytes`);
  if (total > LIMIT) {
    console.error('That is too much.');
    process.exit(1);
  }
}
