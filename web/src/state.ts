import type { Connection } from './connection';
import { SelkieError, asSelkieError } from './errors';
import type { Plane, State } from './types';

/** A state that lies in the worker, under a number. */
export class WorkerState implements State {
  #connection: Connection;
  #number: number;
  #disposed = false;

  constructor(connection: Connection, number: number) {
    this.#connection = connection;
    this.#number = number;
  }

  /** Its number in `connection`. */
  numberIn(connection: Connection): number {
    if (connection !== this.#connection) throw new SelkieError('argument', 'the state belongs to another model');
    return this.#live();
  }

  async length(): Promise<number> {
    return this.#connection.call('stateLength', [this.#live()]);
  }

  async fork(): Promise<State> {
    return new WorkerState(this.#connection, await this.#connection.call('forkState', [this.#live()]));
  }

  async save(text?: unknown): Promise<Uint8Array> {
    const json = text === undefined ? undefined : JSON.stringify(text);
    return this.#connection.call('saveState', [this.#live(), json]);
  }

  async load(file: Uint8Array | ArrayBuffer | Blob): Promise<unknown> {
    const number = this.#live();
    const bytes = await ownBytes(file);
    const json = await this.#connection.call('loadState', [number, bytes], { transfer: [bytes.buffer] });
    return json === undefined ? undefined : JSON.parse(json);
  }

  async clear(): Promise<void> {
    return this.#connection.call('clearState', [this.#live()]);
  }

  async planes(): Promise<Plane[]> {
    return this.#connection.call('planes', [this.#live()]);
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    // Where the worker is gone, so is the state.
    this.#connection.call('freeState', [this.#number]).catch(() => undefined);
  }

  #live(): number {
    if (this.#disposed) throw new SelkieError('disposed', 'the state was disposed of');
    return this.#number;
  }
}

/** The bytes, in a buffer of their own that may be given away. */
export async function ownBytes(file: Uint8Array | ArrayBuffer | Blob): Promise<Uint8Array<ArrayBuffer>> {
  if (file instanceof Blob) return new Uint8Array(await file.arrayBuffer().catch(error => { throw asSelkieError(error); }));
  return Uint8Array.from(file instanceof Uint8Array ? file : new Uint8Array(file));
}
