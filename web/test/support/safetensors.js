import { readFileSync } from 'node:fs';

/** The tensors of a safetensors file, f32 and i32 alone, as plain arrays. */
export function readTensors(file) {
  const data = readFileSync(file);
  const size = Number(data.readBigUInt64LE(0));
  const header = JSON.parse(data.toString('utf8', 8, 8 + size));
  const tensors = {};
  for (const [name, { dtype, data_offsets: [start, end] }] of Object.entries(header)) {
    const kind = { F32: Float32Array, I32: Int32Array }[dtype];
    if (kind) tensors[name] = Array.from(new kind(Uint8Array.from(data.subarray(8 + size + start, 8 + size + end)).buffer));
  }
  return tensors;
}
