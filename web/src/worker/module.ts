import * as base from 'selkie-wasm/base';
import * as relaxed from 'selkie-wasm/relaxed';
import type { WasmModule } from '../wasm';

export type Simd = 'simd128' | 'relaxed';

/** `(func (param v128 v128) (result v128) local.get 0 local.get 1 i8x16.relaxed_swizzle)`, where there is relaxed SIMD. */
const probe = Uint8Array.of(
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
  1, 7, 1, 0x60, 2, 0x7b, 0x7b, 1, 0x7b,
  3, 2, 1, 0,
  10, 11, 1, 9, 0, 0x20, 0, 0x20, 1, 0xfd, 0x80, 0x02, 0x0b,
);

export function simd(): Simd {
  return WebAssembly.validate(probe) ? 'relaxed' : 'simd128';
}

/** The wasm module that fits this browser, started. Only one of the two is fetched. */
export async function start(): Promise<WasmModule> {
  const module: WasmModule = simd() === 'relaxed' ? relaxed : base;
  await module.default();
  return module;
}
