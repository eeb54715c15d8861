// Files that look like models from outside.

import { createHash } from 'node:crypto';

/** `size` bytes that do not repeat, beginning with `magic`. */
export function bytes(size, seed = 1, magic = 'GGUF') {
  const data = Buffer.alloc(size);
  let x = seed;
  for (let i = 0; i + 4 <= size; i += 4) {
    // Marsaglia's xorshift32.
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    data.writeInt32LE(x, i);
  }
  data.write(magic, 0, 'latin1');
  return data;
}

/** What begins like safetensors: the length of a header, and the header. */
export function safetensors(size, seed = 1) {
  const data = bytes(size, seed);
  data.writeBigUInt64LE(2n, 0);
  data.write('{}', 8);
  return data;
}

export function sha256(...data) {
  const hash = createHash('sha256');
  for (const piece of data) hash.update(piece);
  return hash.digest('hex');
}

/** The id that the stand-in for the wasm module gives to a model of these bytes. */
export function idOf(...data) {
  return sha256(...data).slice(0, 32);
}
