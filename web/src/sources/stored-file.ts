import type { ByteSource } from '../wasm';
import { checkEnd } from './magic';
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
    checkEnd(this.name, this.size, start, end);
    return readSlice(this.#handle, start, end);
  }
}
