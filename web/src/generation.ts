import type { Generation, Result } from './types';

/** What a text comes from: `push` its pieces, and settle with what came of it. `cancel` says that nobody wants more. */
export type Run = (push: (text: string) => void, cancel: AbortSignal) => Promise<Result>;

/** A text on its way. It runs whether or not anybody looks; who looks late sees it from its beginning. */
export class RunningGeneration implements Generation {
  #pieces: string[] = [];
  #result: Promise<Result>;
  #settled = false;
  #wake: (() => void)[] = [];
  #cancel = new AbortController();

  constructor(run: Run, signal?: AbortSignal) {
    if (signal?.aborted) this.#cancel.abort();
    const cancel = () => this.#cancel.abort();
    signal?.addEventListener('abort', cancel);
    this.#result = run(text => this.#push(text), this.#cancel.signal).finally(() => {
      signal?.removeEventListener('abort', cancel);
      this.#settled = true;
      this.#wakeAll();
    });
    // Those who only iterate get the error there.
    this.#result.catch(() => undefined);
  }

  then<A = Result, B = never>(
    fulfilled?: ((value: Result) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#result.then(fulfilled, rejected);
  }

  /** The pieces. Leaving the loop early ends the text. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, void> {
    let at = 0;
    try {
      for (;;) {
        const piece = this.#pieces[at];
        if (piece !== undefined) {
          at += 1;
          yield piece;
        } else if (this.#settled) {
          // An error belongs at the end of what came before it.
          await this.#result;
          return;
        } else {
          await new Promise<void>(resolve => this.#wake.push(resolve));
        }
      }
    } finally {
      if (!this.#settled) this.#cancel.abort();
    }
  }

  #push(text: string): void {
    this.#pieces.push(text);
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const wake of this.#wake.splice(0)) wake();
  }
}
