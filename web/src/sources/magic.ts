import { SelkieError, bytes } from '../errors';

/** Bytes that are enough to tell what a file is. */
export const ENOUGH = 16;

export type Kind = 'gguf' | 'safetensors' | 'mbjs';

/** Refuses ranges that go beyond the end. */
export function checkEnd(name: string, size: number, start: number, end: number): void {
  if (end <= size) return;
  throw new SelkieError('file', `${name} ends after ${size} bytes, but ${start}..${end} are needed`);
}

/** What a file is by its beginning. */
export function kindOf(start: Uint8Array): Kind | null {
  const magic = text(start.subarray(0, 4));
  if (magic === 'GGUF') return 'gguf';
  if (magic === 'SJBM') return 'mbjs';
  // Length of the JSON header, which nobody writes as long as 100 MB, and the header.
  const view = new DataView(start.buffer, start.byteOffset, start.byteLength);
  const header = start.length >= 9 && start[8] === 0x7b /* { */ && view.getUint32(4, true) === 0;
  return header && view.getUint32(0, true) < 100_000_000 ? 'safetensors' : null;
}

/** Refuses what holds no weights, and says what it is instead where that can be told. */
export function checkKind(name: string, start: Uint8Array, html: boolean): void {
  if (kindOf(start) !== null) return;
  if (html || /^\s*<(!doctype|html|\?xml)/i.test(text(start))) {
    throw new SelkieError('file', `${name}: the server answered with a web page, not with a model`);
  }
  if (text(start).startsWith('version https:')) {
    throw new SelkieError('file', `${name} is a Git LFS pointer, not the model itself`);
  }
  const found = Array.from(start.subarray(0, 4), byte => byte.toString(16).padStart(2, '0')).join(' ');
  const what = start.length < ENOUGH ? `ends after ${bytes(start.length)}` : `begins with ${found}`;
  throw new SelkieError('file', `${name} is neither GGUF, safetensors nor MBJS: it ${what}`);
}

function text(start: Uint8Array): string {
  return new TextDecoder('latin1').decode(start);
}
