// From what was given to sources that the wasm module reads.

import { SelkieError, asSelkieError } from '../errors';
import type { SentSource } from '../protocol';
import type { ErrorCode } from '../types';
import type { ByteSource, WasmFiles } from '../wasm';
import { fetchSmall } from './http';
import { type Kept, findKept, forget, makeKept, openKept, saveManifest } from './keep';
import { KeptFiles } from './kept-files';
import { hold } from './files';
import { modelLock } from './layout';
import type { Meter } from './meter';
import { Passing } from './passing';
import { type Plan, type PlannedFile, planFiles, planParts, planUrl } from './plan';

/** Opens the files of one kind of place. */
export interface Opener {
  weights(file: PlannedFile, index: number): Promise<ByteSource>;
  /** `null` where it is optional and not there. */
  small(file: PlannedFile): Promise<Uint8Array | null>;
  /** Puts down what has come; `error`: why the model was not loaded. */
  close(error: SelkieError | null): Promise<void>;
}

/** A model's files, opened. */
export interface OpenedFiles {
  files: WasmFiles;
  close(error: SelkieError | null): Promise<void>;
}

export async function openFiles(source: SentSource, keep: boolean, meter: Meter, signal: AbortSignal): Promise<OpenedFiles> {
  const { plan, kept } = await find(source, keep, signal);
  const opener = kept ? await keptOpener(kept, meter, signal) : new Passing(meter, signal);
  try {
    return { files: await openAll(plan, opener), close: error => opener.close(error) };
  } catch (error) {
    await opener.close(asSelkieError(error));
    throw error;
  }
}

async function find(source: SentSource, keep: boolean, signal: AbortSignal): Promise<{ plan: Plan; kept: Kept | null }> {
  if (source.kind === 'files') return { plan: await planFiles(source.files), kept: null };
  if (source.kind === 'stored') return stored(await openKept(source.name));
  const url = source.kind === 'url' ? source.url : null;
  const known = keep && url !== null ? await findKept(url) : null;
  if (known) return stored(known);
  const fetchIndex = (address: string) => fetchSmall(address, signal);
  const plan = source.kind === 'parts' ? planParts(source.parts) : await planUrl(source.url, fetchIndex);
  if (!keep || plan.url === null || !/^https?:/.test(plan.url)) return { plan, kept: null };
  const kept = source.kind === 'parts' ? await findKept(plan.url) : null;
  if (kept) return stored(kept);
  // Two tabs must not make the folder twice.
  const release = await hold('selkie:folders', { signal });
  try {
    const now = await findKept(plan.url) ?? await makeKept(plan, plan.url);
    return now ? stored(now) : { plan, kept: null };
  } finally {
    release?.();
  }
}

function stored(kept: Kept): { plan: Plan; kept: Kept } {
  const { name, url, files } = kept.manifest;
  const planned = files.map(({ role, file, url: from, optional }) => ({ role, name: file, from, optional }));
  return { plan: { name, url, files: planned }, kept };
}

/** With these, going on with a download later would bring nothing. */
const hopeless = new Set<ErrorCode>(['file', 'unsupported', 'out-of-memory']);

/** Nobody deletes the files while they are read. */
async function keptOpener(kept: Kept, meter: Meter, signal: AbortSignal): Promise<Opener> {
  const release = await hold(modelLock(kept.manifest.name), { mode: 'shared', signal });
  kept.manifest.used = Date.now();
  const opener = new KeptFiles(kept, meter, signal);
  return {
    weights: (file, index) => opener.weights(file, index),
    small: file => opener.small(file),
    async close(error) {
      try {
        await opener.close(error === null);
        const extent = await opener.extent();
        const useless = extent === 'nothing' || (extent === 'something' && error !== null && hopeless.has(error.code));
        if (useless) await forget(kept);
        else await saveManifest(kept);
      } finally {
        release?.();
      }
    },
  };
}

async function openAll(plan: Plan, opener: Opener): Promise<WasmFiles> {
  const heavy = plan.files.filter(({ role }) => role === 'weights');
  const light = plan.files.filter(({ role }) => role !== 'weights');
  const files: WasmFiles = { name: plan.name, weights: [] };
  // The small ones first: where one is missing, nothing big has been fetched for nothing.
  const small = await Promise.all(light.map(file => opener.small(file)));
  light.forEach(({ role, name }, i) => {
    const bytes = small[i];
    if (role === 'weights' || !bytes) return;
    if (files[role]) throw new SelkieError('argument', `${name} is the second file for ${role}`);
    files[role] = bytes;
  });
  files.weights = await Promise.all(heavy.map((file, i) => opener.weights(file, i)));
  return files;
}
