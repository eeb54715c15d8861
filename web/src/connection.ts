import { SelkieError, aborted, fromWire } from './errors';
import type { Call, CallEvent, FromWorker, Method, Methods, ToWorker } from './protocol';

interface Pending {
  resolve(value: unknown): void;
  reject(error: SelkieError): void;
  onEvent?: ((event: CallEvent) => void) | undefined;
}

export interface CallOptions {
  signal?: AbortSignal | undefined;
  onEvent?: (event: CallEvent) => void;
  transfer?: Transferable[];
}

/** Milliseconds that a worker gets to put down what it has downloaded. */
const CLOSING = 3000;

/** A worker, and the calls that it has not answered yet. */
export class Connection {
  /** Resolves when nothing works any more, other than by `close`. */
  readonly lost: Promise<SelkieError>;
  #worker: Worker;
  #pending = new Map<number, Pending>();
  #next = 1;
  #gone: SelkieError | null = null;
  #tellLost!: (error: SelkieError) => void;

  constructor() {
    this.lost = new Promise(resolve => { this.#tellLost = resolve; });
    // Bundlers look for exactly this expression.
    this.#worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module', name: 'selkie' });
    this.#worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.#receive(data);
    this.#worker.onerror = event => {
      // A script that cannot be loaded has no message.
      this.#lose(new SelkieError('internal', event.message || 'the worker of Selkie could not be started'));
    };
    this.#worker.onmessageerror = () => this.#lose(new SelkieError('internal', 'an answer of the worker could not be read'));
  }

  /** Calls `method`. An aborted `signal` tells the worker, which answers with `aborted` or with what there is by then. */
  call<M extends Method>(method: M, args: Parameters<Methods[M]>, options: CallOptions = {}): Promise<ReturnType<Methods[M]>> {
    if (this.#gone) return Promise.reject(this.#gone);
    const { signal, onEvent, transfer = [] } = options;
    const id = this.#next++;
    const cancel = () => this.#send({ cancel: id });
    return new Promise<ReturnType<Methods[M]>>((resolve, reject) => {
      this.#pending.set(id, { resolve: value => resolve(value as ReturnType<Methods[M]>), reject, onEvent });
      this.#send({ call: id, method, args, stopped: signal?.aborted ?? false } as Call, transfer);
      signal?.addEventListener('abort', cancel);
    }).finally(() => signal?.removeEventListener('abort', cancel));
  }

  /** Like `call`, but rejects at once when aborted, and ends the worker as soon as it has put down its work. */
  async only<M extends Method>(method: M, args: Parameters<Methods[M]>, options: CallOptions): Promise<ReturnType<Methods[M]>> {
    const { signal } = options;
    const answer = this.call(method, args, options);
    const cancelled = new Promise<never>((_, reject) => {
      const tell = () => reject(aborted());
      if (signal?.aborted) tell();
      signal?.addEventListener('abort', tell, { once: true });
      answer.then(() => signal?.removeEventListener('abort', tell), () => signal?.removeEventListener('abort', tell));
    });
    try {
      return await Promise.race([answer, cancelled]);
    } catch (error) {
      const late = new Promise(resolve => setTimeout(resolve, CLOSING));
      void Promise.race([answer.catch(() => undefined), late]).then(() => this.close());
      throw error;
    }
  }

  /** Ends the worker; calls that are not answered are rejected. */
  close(): void {
    if (this.#gone?.code === 'disposed') return;
    this.#worker.terminate();
    this.#end(new SelkieError('disposed', 'the model was disposed of'));
  }

  #send(message: ToWorker, transfer: Transferable[] = []): void {
    this.#worker.postMessage(message, transfer);
  }

  #receive(message: FromWorker): void {
    if ('lost' in message) return this.#lose(fromWire(message.lost));
    if ('event' in message) return this.#pending.get(message.event)?.onEvent?.(message.what);
    const id = 'done' in message ? message.done : message.failed;
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if ('done' in message) pending?.resolve(message.value);
    else pending?.reject(fromWire(message.error));
  }

  #lose(error: SelkieError): void {
    if (this.#gone) return;
    this.#worker.terminate();
    this.#end(error);
    this.#tellLost(error);
  }

  #end(error: SelkieError): void {
    this.#gone = error;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }
}
