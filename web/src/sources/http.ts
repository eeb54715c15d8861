import { SelkieError, aborted } from '../errors';

/** A failure that may pass: the same request is worth another try. */
export class Interrupted extends SelkieError {
  /** Milliseconds that the server asks for. */
  readonly after: number;

  constructor(message: string, after = 0) {
    super('network', message);
    this.after = after;
  }
}

/** What tells two versions of a file apart, as far as the server shows it. */
export interface Validators {
  etag: string | null;
  modified: string | null;
}

/** An answer, its body not read yet. */
export interface Opened {
  body: ReadableStream<Uint8Array>;
  /** Where the body begins in the file: 0 where the server does not do ranges. */
  from: number;
  /** Size of the file; `null` where the server does not say. */
  total: number | null;
  ranges: boolean;
  html: boolean;
  validators: Validators;
}

/** Asks for the bytes of `url` from `from` on, or those up to `end`. */
export async function openAt(url: string, from: number, end: number | null, signal: AbortSignal): Promise<Opened> {
  // The browser's cache would keep gigabytes a second time.
  const asked = { Range: `bytes=${from}-${end === null ? '' : end - 1}` };
  const response = await ask(url, { headers: asked, signal, cache: 'no-store' });
  const { headers, status } = response;
  const length = /^\d+$/.test(headers.get('content-length') ?? '') ? Number(headers.get('content-length')) : null;
  // A server of another origin may show no Content-Range; then it sent what was asked for.
  const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(headers.get('content-range') ?? '');
  const partial = status === 206;
  const start = partial ? Number(range?.[1] ?? from) : 0;
  const encoded = !['', 'identity'].includes(headers.get('content-encoding') ?? '');
  let total = length === null || encoded || end !== null ? null : start + length;
  if (range?.[2] !== undefined && range[2] !== '*') total = Number(range[2]);
  return {
    body: response.body ?? new Blob([]).stream(),
    from: start,
    total,
    ranges: partial,
    html: /^text\/html\b/.test(headers.get('content-type') ?? ''),
    validators: { etag: headers.get('etag'), modified: headers.get('last-modified') },
  };
}

/** A small file as a whole; `null` where the server has none, or answers with a page that says so. */
export async function fetchSmall(url: string, signal: AbortSignal): Promise<Uint8Array | null> {
  const tries = new Tries(signal);
  for (;;) {
    try {
      const response = await ask(url, { signal });
      const bytes = new Uint8Array(await response.arrayBuffer());
      const html = /^text\/html\b/.test(response.headers.get('content-type') ?? '') || /^\s*</.test(start(bytes));
      return html ? null : bytes;
    } catch (error) {
      if (error instanceof SelkieError && error.code === 'not-found') return null;
      await tries.again(error instanceof SelkieError ? error : new Interrupted(`${url}: ${String(error)}`), false);
    }
  }
}

function start(bytes: Uint8Array): string {
  return new TextDecoder('latin1').decode(bytes.subarray(0, 64));
}

/** The size that the server gives without sending the file. */
export async function sizeOf(url: string, signal: AbortSignal): Promise<number | null> {
  const { headers } = await ask(url, { method: 'HEAD', signal });
  const length = headers.get('content-length');
  return length === null || headers.has('content-encoding') ? null : Number(length);
}

async function ask(url: string, init: RequestInit & { signal: AbortSignal }): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch (error) {
    if (init.signal.aborted) throw aborted();
    // The browser tells scripts no more than this, so that they cannot explore a network.
    throw new Interrupted(`${url}: no answer (${String(error)}); a server of another origin has to allow this page (CORS)`);
  }
  if (response.ok) return response;
  await response.body?.cancel();
  const { status } = response;
  const message = `${url}: the server answered ${status} ${response.statusText}`.trimEnd();
  if (status === 404 || status === 410) throw new SelkieError('not-found', message);
  if (status === 416) throw new Beyond(message);
  if (status === 408 || status === 425 || status === 429 || status >= 500) {
    throw new Interrupted(message, 1000 * (Number(response.headers.get('retry-after')) || 0));
  }
  throw new SelkieError('network', message);
}

/** Two answers about a file do not fit each other. */
export function changed(name: string): SelkieError {
  return new SelkieError('file', `${name} changed on the server while it was being loaded: load it again`);
}

/** The range lies behind the end of the file: it is shorter than it was. */
export class Beyond extends SelkieError {
  constructor(message: string) {
    super('file', message);
  }
}

/** Tries without progress, and milliseconds before the second; each pause is twice the last. */
const TRIES = 6;
const PAUSE = 250;
const LONGEST_PAUSE = 30_000;

/** Counts tries that brought nothing. */
export class Tries {
  #signal: AbortSignal;
  #failed = 0;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /** Waits for the next try after `error`; throws it where there is to be none. */
  async again(error: unknown, progress: boolean): Promise<void> {
    if (this.#signal.aborted) throw aborted();
    if (!(error instanceof Interrupted)) throw error;
    this.#failed = progress ? 1 : this.#failed + 1;
    if (this.#failed >= TRIES) throw error;
    await pause(Math.min(Math.max(PAUSE * 2 ** (this.#failed - 1), error.after), LONGEST_PAUSE), this.#signal);
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancel = () => {
      clearTimeout(timer);
      reject(aborted());
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', cancel);
      resolve();
    }, milliseconds);
    signal.addEventListener('abort', cancel, { once: true });
  });
}
