// A server of test files that can be told to misbehave.

import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const web = fileURLToPath(new URL('../..', import.meta.url));
const types = { '.html': 'text/html', '.js': 'text/javascript', '.wasm': 'application/wasm', '.json': 'application/json' };

/**
 * What `server.files` maps paths to. All but `data` is optional.
 * @typedef {object} Served
 * @property {Uint8Array} data
 * @property {number} [status] answers with this instead
 * @property {number} [failures] answers so many requests with 503 first
 * @property {number} [cut] breaks the connection after so many bytes of each answer
 * @property {number} [rate] bytes a second
 * @property {number} [hang] sends so many bytes of an answer and then nothing more, for as long as it is set
 * @property {boolean} [noRanges] always sends everything
 * @property {string | null} [etag] its hash where it is not given; `null`: none
 * @property {string} [type] content type
 * @property {boolean} [noLength] does not say how much comes
 */

/** Serves the package's folders under /web/, an empty page, and `files`. */
export class Server {
  /** Code by name: under /with/NAME/ the same lies as under /web/, but its worker.js begins with that code. */
  prologues = new Map();
  /** @type {Map<string, Served>} */
  files = new Map();
  /** Requests for `files`, as `{ path, method, range }`. */
  requests = [];
  #server = createServer((request, response) => void this.#answer(request, response));

  async listen() {
    await new Promise(resolve => this.#server.listen(0, '127.0.0.1', resolve));
    this.origin = `http://127.0.0.1:${this.#server.address().port}`;
    return this;
  }

  close() {
    this.#server.closeAllConnections();
    return new Promise(resolve => this.#server.close(resolve));
  }

  /** Breaks all connections. */
  drop() {
    this.#server.closeAllConnections();
  }

  /** Serves `data` at `path`; gives the address. */
  serve(path, data, how = {}) {
    this.files.set(path, { data, ...how });
    return this.origin + path;
  }

  /** Bytes that requests for `path` asked to begin with. */
  starts(path) {
    return this.requests.filter(request => request.path === path && request.method === 'GET')
      .map(({ range }) => Number(/bytes=(\d+)/.exec(range ?? '')?.[1] ?? 0));
  }

  async #answer(request, response) {
    const { pathname } = new URL(request.url, this.origin);
    response.on('error', () => undefined);
    if (pathname === '/') {
      response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><meta charset=utf-8><title>test</title>');
    } else if (pathname.startsWith('/web/')) {
      this.#own(join(web, pathname.slice('/web/'.length)), '', response);
    } else if (pathname.startsWith('/with/')) {
      const [, , name, ...rest] = pathname.split('/');
      this.#own(join(web, ...rest), rest.at(-1) === 'worker.js' ? `${this.prologues.get(name)}\n` : '', response);
    } else if (this.files.has(pathname)) {
      this.requests.push({ path: pathname, method: request.method, range: request.headers.range });
      await this.#send(this.files.get(pathname), request, response);
    } else {
      this.requests.push({ path: pathname, method: request.method, range: request.headers.range });
      response.writeHead(404, { 'content-type': 'text/plain' }).end('no such file');
    }
  }

  #own(file, prologue, response) {
    let data;
    try {
      data = Buffer.concat([Buffer.from(prologue), readFileSync(file)]);
    } catch {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'content-type': types[extname(file)] ?? 'application/octet-stream', 'cache-control': 'no-store' }).end(data);
  }

  /** @param {Served} served */
  async #send(served, request, response) {
    const { data } = served;
    if (served.failures > 0) {
      served.failures -= 1;
      response.writeHead(503).end();
      return;
    }
    if (served.status) {
      response.writeHead(served.status, { 'content-type': 'text/plain' }).end('as told');
      return;
    }
    const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(served.noRanges ? '' : request.headers.range ?? '') ?? [];
    const start = Number(from ?? 0);
    const headers = { 'content-type': served.type ?? 'application/octet-stream', 'cache-control': 'no-store' };
    const etag = served.etag === undefined ? `"${createHash('sha256').update(data).digest('hex').slice(0, 16)}"` : served.etag;
    if (etag !== null) headers.etag = etag;
    if (from !== undefined && start >= data.length) {
      response.writeHead(416, { ...headers, 'content-range': `bytes */${data.length}` }).end();
      return;
    }
    const end = to ? Math.min(Number(to) + 1, data.length) : data.length;
    if (from !== undefined) headers['content-range'] = `bytes ${start}-${end - 1}/${data.length}`;
    if (!served.noLength) headers['content-length'] = end - start;
    response.writeHead(from === undefined ? 200 : 206, headers);
    if (request.method === 'HEAD') response.end();
    else await this.#body(served, data.subarray(start, end), response);
  }

  /** @param {Served} served */
  async #body(served, data, response) {
    const { cut } = served;
    const closed = once(response, 'close');
    const step = served.rate ? Math.max(1, Math.ceil(served.rate / 50)) : 64 << 10;
    for (let at = 0; at < data.length; at += step) {
      if (response.destroyed) return;
      const end = Math.min(at + step, data.length);
      if (cut !== undefined && end > cut) {
        response.write(data.subarray(at, Math.max(at, cut)), () => response.socket?.destroySoon());
        return;
      }
      while (served.hang !== undefined && end > served.hang && !response.destroyed) await pause(20);
      if (!response.write(data.subarray(at, end))) await Promise.race([once(response, 'drain'), closed]);
      if (served.rate) await pause(20);
    }
    response.end();
  }
}

function pause(milliseconds) {
  return new Promise(resolve => setTimeout(resolve, milliseconds));
}
