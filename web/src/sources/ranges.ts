import { SelkieError } from '../errors';
import type { ByteSource } from '../wasm';
import { Beyond, Interrupted, Tries, type Validators, changed, openAt } from './http';
import { checkEnd } from './magic';
import type { Meter } from './meter';

/** Bytes of a request: small ones would wait for the network more than they read. */
const BLOCK = 4 << 20;
/** The block that is read, and the next. */
const KEPT = 3;

/** A file that is read from its server in ranges, and kept nowhere. */
export class RangeSource implements ByteSource {
  readonly name: string;
  readonly size: number;
  #url: string;
  #validators: Validators;
  #meter: Meter;
  #signal: AbortSignal;
  #blocks = new Map<number, Promise<Uint8Array>>();
  #furthest = 0;

  constructor(url: string, name: string, size: number, validators: Validators, meter: Meter, signal: AbortSignal) {
    this.#url = url;
    this.name = name;
    this.size = size;
    this.#validators = validators;
    this.#meter = meter;
    this.#signal = signal;
    meter.expect(name, size);
  }

  async read(start: number, end: number): Promise<Uint8Array> {
    checkEnd(this.name, this.size, start, end);
    const into = new Uint8Array(end - start);
    for (let at = start; at < end;) {
      const index = Math.floor(at / BLOCK);
      const block = await this.#block(index);
      const from = at - index * BLOCK;
      const piece = block.subarray(from, from + end - at);
      into.set(piece, at - start);
      at += piece.length;
    }
    return into;
  }

  /** A block, which is likely not the last that is wanted: the next is asked for, too. */
  #block(index: number): Promise<Uint8Array> {
    const block = this.#ask(index);
    if ((index + 1) * BLOCK < this.size) this.#ask(index + 1);
    return block;
  }

  #ask(index: number): Promise<Uint8Array> {
    const known = this.#blocks.get(index);
    if (known) return known;
    const block = this.#fetch(index * BLOCK, Math.min((index + 1) * BLOCK, this.size));
    // Nobody may come for a block that was asked for ahead; who does, gets the error. A later read tries again.
    block.catch(() => this.#blocks.delete(index));
    this.#blocks.set(index, block);
    const [oldest] = this.#blocks.keys();
    if (this.#blocks.size > KEPT && oldest !== undefined) this.#blocks.delete(oldest);
    return block;
  }

  async #fetch(start: number, end: number): Promise<Uint8Array> {
    const tries = new Tries(this.#signal);
    for (;;) {
      try {
        const { body, validators, ranges, total } = await openAt(this.#url, start, end, this.#signal);
        const { etag, modified } = this.#validators;
        const other = validators.etag !== etag || validators.modified !== modified;
        if (other || !ranges || (total !== null && total !== this.size)) {
          void body.cancel();
          throw changed(this.name);
        }
        const block = new Uint8Array(await new Response(body).arrayBuffer());
        if (block.length !== end - start) throw new Interrupted(`${this.name}: ${block.length} of ${end - start} bytes came`);
        this.#furthest = Math.max(this.#furthest, end);
        this.#meter.have(this.name, this.#furthest);
        return block;
      } catch (error) {
        if (error instanceof Beyond) throw changed(this.name);
        const broken = () => new Interrupted(`${this.name}: the connection broke (${String(error)})`);
        await tries.again(error instanceof SelkieError ? error : broken(), false);
      }
    }
  }
}
