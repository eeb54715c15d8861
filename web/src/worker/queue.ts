/** Whether a call is still wanted. */
export class Stop {
  #controller = new AbortController();

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get stopped(): boolean {
    return this.signal.aborted;
  }

  stop(): void {
    this.#controller.abort();
  }
}

/** Does one thing after the other: the wasm module cannot be entered twice. */
export class Queue {
  #last: Promise<unknown> = Promise.resolve();

  add<T>(task: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(task);
    // A task that fails is no reason not to do the next.
    this.#last = turn.catch(() => undefined);
    return turn;
  }
}
