import { Tries } from './http';

/** Does `step` until it succeeds or is not worth another try. */
export async function withTries<T>(signal: AbortSignal, step: () => Promise<T>): Promise<T> {
  const tries = new Tries(signal);
  for (;;) {
    try {
      return await step();
    } catch (error) {
      await tries.again(error, false);
    }
  }
}
