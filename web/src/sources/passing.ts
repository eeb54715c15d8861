import { SelkieError } from '../errors';
import type { ByteSource } from '../wasm';
import { BlobSource } from './blob';
import { Download } from './download';
import { fetchSmall, openAt } from './http';
import { checkKind, ENOUGH } from './magic';
import type { Meter } from './meter';
import type { Opener } from './open';
import type { PlannedFile } from './plan';
import { RangeSource } from './ranges';
import { MemorySink } from './sink';
import { withTries } from './tries';

/** Files that are kept nowhere: those of the visitor's disk, and addresses where the browser keeps nothing or is not to. */
export class Passing implements Opener {
  #meter: Meter;
  #signal: AbortSignal;

  constructor(meter: Meter, signal: AbortSignal) {
    this.#meter = meter;
    this.#signal = signal;
  }

  async weights({ name, from }: PlannedFile): Promise<ByteSource> {
    const [meter, signal] = [this.#meter, this.#signal];
    if (from instanceof Blob) return checked(new BlobSource(from, name));
    const opened = await withTries(signal, () => openAt(from, 0, null, signal));
    if (opened.ranges && opened.total !== null) {
      void opened.body.cancel();
      return checked(new RangeSource(from, name, opened.total, opened.validators, meter, signal));
    }
    // No part of it can be had without the rest: memory has to hold it.
    return Download.start(new MemorySink(name, opened.total), opened, { url: from, name, part: null, meter, signal });
  }

  async small({ name, from, optional }: PlannedFile): Promise<Uint8Array | null> {
    if (from instanceof Blob) return new BlobSource(from, name).read(0, from.size);
    const bytes = await fetchSmall(from, this.#signal);
    if (!bytes && !optional) throw new SelkieError('not-found', `${from}: there is no such file`);
    return bytes;
  }

  async close(): Promise<void> {
    // What was on its way ends with the signal.
  }
}

async function checked<S extends ByteSource>(source: S): Promise<S> {
  checkKind(source.name, await source.read(0, Math.min(ENOUGH, source.size)), false);
  return source;
}
