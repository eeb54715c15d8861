import { SelkieError } from '../errors';
import { FIRST_STATE } from '../protocol';
import type { WasmModel, WasmSession } from '../wasm';

/** The states of a model by their numbers. One that holds nothing takes no memory. */
export class States {
  #model: WasmModel;
  #capacity: number;
  #sessions = new Map<number, WasmSession | null>([[FIRST_STATE, null]]);
  #next = FIRST_STATE + 1;

  constructor(model: WasmModel, capacity: number) {
    this.#model = model;
    this.#capacity = capacity;
  }

  add(session: WasmSession | null = null): number {
    const state = this.#next++;
    this.#sessions.set(state, session);
    return state;
  }

  async get(state: number): Promise<WasmSession> {
    const there = this.#at(state);
    if (there) return there;
    const session = await this.#model.newSession(this.#capacity);
    this.#sessions.set(state, session);
    return session;
  }

  async fork(state: number): Promise<number> {
    return this.add(this.#at(state)?.fork() ?? null);
  }

  async load(state: number, file: Uint8Array): Promise<void> {
    this.#at(state);
    // The old one stays where the file does not fit.
    const session = await this.#model.loadState(file, this.#capacity);
    this.#sessions.get(state)?.free();
    this.#sessions.set(state, session);
  }

  clear(state: number): void {
    this.#at(state)?.free();
    this.#sessions.set(state, null);
  }

  free(state: number): void {
    this.clear(state);
    this.#sessions.delete(state);
  }

  #at(state: number): WasmSession | null {
    const session = this.#sessions.get(state);
    if (session === undefined) throw new SelkieError('disposed', 'the state was disposed of');
    return session;
  }
}
