import { SelkieError } from '../errors';
import type { ByteSource } from '../wasm';
import { readSlice } from './sink';

/** A file that the browser keeps, all of it. */
export class StoredFile implements ByteSource {
  readonly name: string;
  readonly size: number;
  #handle: FileSystemFileHandle;

  constructor(handle: FileSystemFileHandle, size: number) {
    this.#handle = handle;
    this.name = handle.name;
    this.size = size;
  }

  async read(start: number, end: number): Promise<Uint8Array> {
    const bytes = await readSlice(this.#handle, start, end);
    if (bytes.length < end - start) throw new SelkieError('file', `${this.name} ends after ${this.size} bytes, but ${start}..${end} are needed`);
    return bytes;
  }
}
