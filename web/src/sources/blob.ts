import { SelkieError } from '../errors';
import type { ByteSource } from '../wasm';
import { checkEnd } from './magic';

/** A file of the visitor's disk, or bytes that the page made. */
export class BlobSource implements ByteSource {
  readonly name: string;
  readonly size: number;
  #blob: Blob;

  constructor(blob: Blob, name: string) {
    this.#blob = blob;
    this.name = name;
    this.size = blob.size;
  }

  async read(start: number, end: number): Promise<Uint8Array> {
    checkEnd(this.name, this.size, start, end);
    try {
      return new Uint8Array(await this.#blob.slice(start, end).arrayBuffer());
    } catch (error) {
      throw new SelkieError('file', `${this.name} can no longer be read: it was changed, moved or deleted`, { cause: error });
    }
  }
}
