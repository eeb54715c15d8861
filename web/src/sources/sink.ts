import { SelkieError, bytes } from '../errors';
import { writeJson } from './files';
import { type Part, partName } from './layout';

/** Where a download goes: bytes in order, which can be read while more come in. */
export interface Sink {
  have: number;
  append(chunk: Uint8Array): void;
  read(start: number, end: number): Uint8Array | Promise<Uint8Array>;
  clear(): void;
  /** Makes sure that what is there is found again. */
  save(part: Part): Promise<void>;
  /** Nothing more comes. Reading goes on. */
  close(): void;
}

/** In memory, for want of anything else. */
export class MemorySink implements Sink {
  have = 0;
  #name: string;
  #buffer: Uint8Array;

  constructor(name: string, size: number | null) {
    this.#name = name;
    this.#buffer = this.#allocate(size ?? 1 << 20);
  }

  append(chunk: Uint8Array): void {
    const end = this.have + chunk.length;
    if (end > this.#buffer.length) {
      const grown = this.#allocate(Math.max(end, this.#buffer.length * 2));
      grown.set(this.#buffer.subarray(0, this.have));
      this.#buffer = grown;
    }
    this.#buffer.set(chunk, this.have);
    this.have = end;
  }

  read(start: number, end: number): Uint8Array {
    return this.#buffer.slice(start, end);
  }

  clear(): void {
    this.have = 0;
  }

  async save(): Promise<void> {
    // It is gone with the page.
  }

  close(): void {
    // Nothing is held.
  }

  #allocate(size: number): Uint8Array {
    try {
      return new Uint8Array(size);
    } catch (error) {
      const message = `${this.#name}: the browser has no ${bytes(size)} of memory for it`;
      throw new SelkieError('out-of-memory', message, { cause: error });
    }
  }
}

/** In the browser's files. The file is this worker's alone until `close`. */
export class FileSink implements Sink {
  have: number;
  #folder: FileSystemDirectoryHandle;
  #handle: FileSystemFileHandle;
  #access: FileSystemSyncAccessHandle | null;

  private constructor(folder: FileSystemDirectoryHandle, handle: FileSystemFileHandle, access: FileSystemSyncAccessHandle) {
    this.#folder = folder;
    this.#handle = handle;
    this.#access = access;
    this.have = access.getSize();
  }

  /** Opens `file`, of which `have` bytes are known to be good. */
  static async open(folder: FileSystemDirectoryHandle, file: string, have: number): Promise<FileSink> {
    const handle = await folder.getFileHandle(file, { create: true });
    const sink = new FileSink(folder, handle, await handle.createSyncAccessHandle());
    // What came after the last `save` may be there in part.
    if (sink.have > have) sink.#cut(have);
    return sink;
  }

  append(chunk: Uint8Array): void {
    const written = this.#open().write(chunk as Uint8Array<ArrayBuffer>, { at: this.have });
    this.have += written;
    if (written < chunk.length) throw new DOMException('the disk or the quota is full', 'QuotaExceededError');
  }

  read(start: number, end: number): Uint8Array | Promise<Uint8Array> {
    if (!this.#access) return readSlice(this.#handle, start, end);
    const into = new Uint8Array(end - start);
    const count = this.#access.read(into, { at: start });
    if (count === into.length) return into;
    throw new SelkieError('storage', `${this.#handle.name}: only ${count} of ${into.length} bytes could be read back`);
  }

  clear(): void {
    this.#cut(0);
  }

  async save(part: Part): Promise<void> {
    this.#access?.flush();
    await writeJson(this.#folder, partName(this.#handle.name), part);
  }

  close(): void {
    this.#access?.close();
    this.#access = null;
  }

  #cut(size: number): void {
    this.#open().truncate(size);
    this.have = size;
  }

  #open(): FileSystemSyncAccessHandle {
    if (!this.#access) throw new SelkieError('internal', `${this.#handle.name} is closed`);
    return this.#access;
  }
}

/** Reads a file that others may read, too. */
export async function readSlice(handle: FileSystemFileHandle, start: number, end: number): Promise<Uint8Array> {
  const file = await handle.getFile();
  return new Uint8Array(await file.slice(start, end).arrayBuffer());
}
