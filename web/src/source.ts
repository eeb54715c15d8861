import { SelkieError } from './errors';
import type { SentFile, SentParts, SentSource } from './protocol';
import type { FileSource, ModelFiles, Source } from './types';

/** A source as the worker takes it. */
export function sendable(source: Source): SentSource {
  if (typeof source === 'string' && source.startsWith('stored:')) return { kind: 'stored', name: source.slice('stored:'.length) };
  if (typeof source === 'string' || source instanceof URL) return { kind: 'url', url: absolute(source) };
  if (source instanceof Blob) return { kind: 'files', files: [source] };
  if (Array.isArray(source) || source instanceof FileList) {
    const files = Array.from(source);
    if (files.length === 0) throw new SelkieError('argument', 'no files were given');
    return { kind: 'files', files };
  }
  // Without types, anything may come.
  if (!(source as ModelFiles | null | undefined)?.weights) throw new SelkieError('argument', 'that is no source of a model');
  return { kind: 'parts', parts: parts(source) };
}

function parts(source: ModelFiles): SentParts {
  const { name, weights, ...others } = source;
  const files = (Array.isArray(weights) ? weights : [weights]).map(file);
  if (files.length === 0) throw new SelkieError('argument', 'weights names no file');
  const sent: SentParts = { weights: files };
  if (name !== undefined) sent.name = name;
  for (const role of ['index', 'config', 'tokenizer', 'tokenizerConfig', 'chatTemplate'] as const) {
    const value = others[role];
    if (value !== undefined) sent[role] = file(value);
  }
  return sent;
}

function file(source: FileSource): SentFile {
  return source instanceof Blob ? source : absolute(source);
}

/** Addresses are relative to the page, not to the worker. */
function absolute(url: string | URL): string {
  try {
    return new URL(url, document.baseURI).href;
  } catch {
    throw new SelkieError('argument', `${url} is no address`);
  }
}
