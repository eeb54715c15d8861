import type { ByteSource } from '../wasm';

/** A file whose download begins when it is its turn, or when it is read. */
export class Later implements ByteSource {
  readonly name: string;
  readonly size: number;
  #open: () => Promise<ByteSource>;
  #source: Promise<ByteSource> | null = null;

  constructor(name: string, size: number, open: () => Promise<ByteSource>) {
    this.name = name;
    this.size = size;
    this.#open = open;
  }

  get started(): boolean {
    return this.#source !== null;
  }

  start(): Promise<ByteSource> {
    return this.#source ??= this.#open();
  }

  async read(start: number, end: number): Promise<Uint8Array> {
    return (await this.start()).read(start, end);
  }
}
