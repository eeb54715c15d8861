import { createSHA256, type IHasher } from 'hash-wasm';
import { SelkieError, aborted, asSelkieError, bytes } from '../errors';
import type { ByteSource } from '../wasm';
import { Beyond, Interrupted, type Opened, Tries, type Validators, changed, openAt } from './http';
import type { Part } from './layout';
import { ENOUGH, checkEnd, checkKind } from './magic';
import type { Meter } from './meter';
import type { Sink } from './sink';

/** Bytes that are fetched again and compared when a download goes on. */
const OVERLAP = 64 << 10;
/** What has come is put down after so many bytes, or milliseconds. */
const SAVE_BYTES = 16 << 20;
const SAVE_TIME = 2000;
/** Milliseconds without a byte after which a connection counts as dead. */
const STALLED = 30_000;

export interface DownloadOptions {
  url: string;
  name: string;
  /** What is known of it from before. */
  part: Part | null;
  meter: Meter;
  signal: AbortSignal;
}

/** A read that goes beyond what has come. */
interface Waiting {
  end: number;
  resolve(): void;
  reject(error: SelkieError): void;
}

/** A file on its way into a sink. Ranges that have arrived can be read; reads beyond wait. */
export class Download implements ByteSource {
  readonly name: string;
  /** Resolves when all has come; rejects with what ended it. */
  readonly done: Promise<void>;
  #options: DownloadOptions;
  #sink: Sink;
  #hash: IHasher;
  #size: number | null;
  #validators: Validators;
  #waiting: Waiting[] = [];
  #failed: SelkieError | null = null;
  /** Resolves when it is clear which file comes: what follows has to fit that. */
  #begun: Promise<void>;
  #begin: (() => void) | null = null;
  #saved = { at: 0, time: 0 };

  private constructor(sink: Sink, hash: IHasher, options: DownloadOptions, opened: Opened) {
    const { name, part } = options;
    this.name = name;
    this.#options = options;
    this.#sink = sink;
    this.#hash = hash;
    this.#size = part?.size ?? opened.total;
    this.#validators = part ?? opened.validators;
    this.#saved = { at: sink.have, time: performance.now() };
    if (this.#size !== null) options.meter.expect(name, this.#size);
    options.meter.have(name, sink.have);
    this.#begun = new Promise(resolve => { this.#begin = resolve; });
    this.done = this.#run(opened);
    // Readers are told by `read`.
    this.done.catch(() => undefined);
  }

  /**
   * Goes on into `sink` from where it ends. Gives what is the same file as before, or else a new one from its
   * beginning, and has a size: where the server tells none, all has come by then.
   */
  static async start(sink: Sink, opened: Opened, options: DownloadOptions): Promise<Download> {
    const hash = await createSHA256();
    hash.init();
    if (sink.have > 0 && options.part?.hashed) hash.load(fromHex(options.part.hashed));
    else sink.clear();
    const download = new Download(sink, hash, options, opened);
    await Promise.race([download.#begun, download.done]);
    if (download.#size === null) await download.done;
    return download;
  }

  /** Where a download of which `have` bytes are there asks the server to begin. */
  static resumeAt(have: number): number {
    return Math.max(0, have - OVERLAP);
  }

  get size(): number {
    return this.#size ?? this.#sink.have;
  }

  async read(start: number, end: number): Promise<Uint8Array> {
    checkEnd(this.name, this.size, start, end);
    if (end > this.#sink.have) {
      if (this.#failed) throw this.#failed;
      await new Promise<void>((resolve, reject) => this.#waiting.push({ end, resolve, reject }));
    }
    if (this.#options.signal.aborted) throw aborted();
    return this.#sink.read(start, end);
  }

  async #run(first: Opened): Promise<void> {
    const { url, signal } = this.#options;
    const tries = new Tries(signal);
    let opened: Opened | null = first;
    try {
      for (;;) {
        const before = this.#sink.have;
        try {
          opened ??= await openAt(url, Download.resumeAt(before), null, signal);
          if (this.#fits(opened) && await this.#stream(opened)) break;
          this.#startOver();
        } catch (error) {
          if (error instanceof Beyond && before > 0) this.#startOver();
          else await tries.again(error, this.#sink.have > before);
        }
        opened = null;
      }
      await this.#finish();
    } catch (error) {
      await this.#fail(signal.aborted ? aborted() : asSelkieError(error));
    }
  }

  /** Whether an answer is about the file of which there is a part. */
  #fits({ total, validators, body }: Opened): boolean {
    const differ = <T>(a: T | null, b: T | null) => a !== null && b !== null && a !== b;
    const { etag, modified } = this.#validators;
    if (!differ(total, this.#size) && !differ(validators.etag, etag) && !differ(validators.modified, modified)) return true;
    void body.cancel();
    return false;
  }

  /** Takes what comes; `false` where it is another file than before. */
  async #stream({ body, from, total, html, validators }: Opened): Promise<boolean> {
    const { meter, name } = this.#options;
    if (this.#sink.have === 0) {
      this.#size = total;
      this.#validators = validators;
    }
    if (this.#size !== null) meter.expect(name, this.#size);
    const reader = body.getReader();
    let at = from;
    let complete = false;
    try {
      for (;;) {
        const { done, value } = await inTime(reader.read(), name);
        if (done) break;
        if (!await this.#take(value, at, html)) return false;
        at += value.length;
      }
      complete = true;
    } catch (error) {
      if (error instanceof SelkieError || error instanceof DOMException) throw error;
      throw new Interrupted(`${name}: the connection broke after ${this.#progress()} (${String(error)})`);
    } finally {
      if (!complete) reader.cancel().catch(() => undefined);
    }
    if (this.#size === null || this.#sink.have >= this.#size) return true;
    throw new Interrupted(`${name}: the connection ended after ${this.#progress()}`);
  }

  /** Takes bytes of the file from `at` on; what is there already is compared. */
  async #take(value: Uint8Array, at: number, html: boolean): Promise<boolean> {
    const { name, meter } = this.#options;
    const known = Math.min(Math.max(this.#sink.have - at, 0), value.length);
    if (known > 0 && !same(await this.#sink.read(at, at + known), value.subarray(0, known))) return false;
    const fresh = value.subarray(known);
    if (fresh.length === 0) return true;
    const before = this.#sink.have;
    if (this.#size !== null && before + fresh.length > this.#size) {
      throw new SelkieError('network', `${name}: more came than the ${bytes(this.#size)} that the server had announced`);
    }
    this.#sink.append(fresh);
    this.#hash.update(fresh);
    if (before < ENOUGH && this.#sink.have >= ENOUGH) checkKind(name, await this.#sink.read(0, ENOUGH), html);
    meter.have(name, this.#sink.have);
    if (this.#sink.have >= ENOUGH) this.#begins();
    this.#wake();
    const { at: saved, time } = this.#saved;
    if (this.#sink.have - saved >= SAVE_BYTES || performance.now() - time >= SAVE_TIME) await this.#save(null);
    return true;
  }

  #progress(): string {
    return `${bytes(this.#sink.have)} of ${bytes(this.size)}`;
  }

  #begins(): void {
    this.#begin?.();
    this.#begin = null;
  }

  /** The file on the server is another one now: from the beginning, unless somebody may have seen the old one. */
  #startOver(): void {
    this.#sink.clear();
    this.#hash.init();
    this.#size = null;
    this.#validators = { etag: null, modified: null };
    if (this.#begin === null) throw changed(this.name);
  }

  #wake(): void {
    const ready = this.#waiting.filter(({ end }) => end <= this.#sink.have);
    if (ready.length === 0) return;
    this.#waiting = this.#waiting.filter(({ end }) => end > this.#sink.have);
    for (const { resolve } of ready) resolve();
  }

  async #finish(): Promise<void> {
    const { have } = this.#sink;
    if (have < ENOUGH) checkKind(this.name, await this.#sink.read(0, have), false);
    this.#size = have;
    await this.#save(this.#hash.digest());
    this.#sink.close();
    this.#wake();
  }

  async #save(sha256: string | null): Promise<void> {
    this.#saved = { at: this.#sink.have, time: performance.now() };
    const hashed = sha256 === null ? toHex(this.#hash.save()) : null;
    await this.#sink.save({ ...this.#validators, size: this.#size, have: this.#sink.have, sha256, hashed });
  }

  /** Keeps what there is for the next time, and tells everybody. */
  async #fail(error: SelkieError): Promise<void> {
    // The beginning of something else is not worth keeping.
    if (error.code === 'file') this.#sink.clear();
    const full = () => `${this.name}: no room for more after ${this.#progress()}: ${error.message}`;
    const failure = error.code === 'storage' ? new SelkieError('storage', full()) : error;
    this.#failed = failure;
    // A disk that is full may not even take this; what was saved before counts then.
    await this.#save(null).catch(() => undefined);
    this.#sink.close();
    for (const { reject } of this.#waiting.splice(0)) reject(failure);
    throw failure;
  }
}

function same(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

async function inTime<T>(answer: Promise<T>, name: string): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Interrupted(`${name}: nothing came for ${STALLED / 1000} seconds`)), STALLED);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

function toHex(data: Uint8Array): string {
  return Array.from(data, byte => byte.toString(16).padStart(2, '0')).join('');
}

function fromHex(text: string): Uint8Array {
  return Uint8Array.from(text.match(/../g) ?? [], pair => parseInt(pair, 16));
}
