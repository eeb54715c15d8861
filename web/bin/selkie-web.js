#!/usr/bin/env node
// Shows the chat page: a server of its files for this machine alone.

import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = fileURLToPath(new URL('../dist/app', import.meta.url));
const types = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm', '.json': 'application/json',
  '.webmanifest': 'application/manifest+json', '.svg': 'image/svg+xml', '.png': 'image/png', '.ico': 'image/x-icon',
};

const usage = 'selkie-web [--port N]    shows the chat page at http://127.0.0.1:N (8080 where it is not said)';
const { values } = options();
if (values.help) {
  console.log(usage);
  process.exit(0);
}
if (!existsSync(join(root, 'index.html'))) {
  console.error('The page has not been built: npm run build');
  process.exit(1);
}

const server = createServer((request, response) => {
  const file = fileOf(request.url ?? '/');
  if (!file || !['GET', 'HEAD'].includes(request.method ?? '')) {
    response.writeHead(404, { 'content-type': 'text/plain' }).end('there is no such page\n');
    return;
  }
  response.writeHead(200, {
    'content-type': types[extname(file)] ?? 'application/octet-stream',
    'content-length': statSync(file).size,
    // What has a hash in its name never changes; the rest is asked for again.
    'cache-control': /-[\w-]{8}\.\w+$/.test(file) ? 'max-age=31536000, immutable' : 'no-cache',
  });
  if (request.method === 'HEAD') response.end();
  else createReadStream(file).pipe(response);
});
server.on('error', error => {
  console.error(error.message);
  process.exit(1);
});
server.listen(Number(values.port), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});

function options() {
  try {
    return parseArgs({ options: { port: { type: 'string', default: '8080' }, help: { type: 'boolean', short: 'h' } } });
  } catch (error) {
    console.error(`${error.message}\n${usage}`);
    process.exit(2);
  }
}

/** The file of the page that `url` means; `null` where there is none. */
function fileOf(url) {
  let path;
  try {
    path = decodeURIComponent(new URL(url, 'http://localhost').pathname);
  } catch {
    return null;
  }
  const file = normalize(join(root, path.endsWith('/') ? `${path}index.html` : path));
  return file.startsWith(root + sep) && existsSync(file) && statSync(file).isFile() ? file : null;
}
