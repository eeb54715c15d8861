// How fast models write here, from the answers so far. Decoding reads all weights once a token, so bytes times tokens a
// second is about the same for all models on one device.

import type { ModelInfo, Result } from './engine';

type Backend = ModelInfo['backend'];

const KEY = 'selkie.pace';

/** Shorter answers say little. */
const ENOUGH = 16;

/** The share that a new answer has in the figure that is kept. */
const WEIGHT = 0.4;

function kept(): Partial<Record<Backend, number>> {
  try {
    const { webgpu, cpu } = JSON.parse(localStorage.getItem(KEY) ?? '{}') as Record<string, unknown>;
    return { ...(typeof webgpu === 'number' ? { webgpu } : {}), ...(typeof cpu === 'number' ? { cpu } : {}) };
  } catch {
    return {};
  }
}

export function learn(info: ModelInfo, { newTokens, decodePerSecond }: Result): void {
  if (newTokens < ENOUGH || !(decodePerSecond > 0)) return;
  const all = kept();
  const now = info.bytes * decodePerSecond;
  const before = all[info.backend] ?? now;
  try {
    localStorage.setItem(KEY, JSON.stringify({ ...all, [info.backend]: before + WEIGHT * (now - before) }));
  } catch {
    // Storage is refused: there is no estimate.
  }
}

/** Tokens a second that a model of so many bytes would write, or `null` before the first answer. */
export function estimate(bytes: number, backend: Backend): number | null {
  const pace = kept()[backend];
  return pace === undefined || bytes === 0 ? null : pace / bytes;
}
