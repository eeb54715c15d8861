// The one model that is open, and how it comes to be.

import { Selkie, SelkieError, type LoadOptions, type Model, type Progress, type Source } from './engine';
import { isAbort } from './errors';
import { settings } from './settings';
import { Value } from './value';

/** What to open, and what to call it until its own name is known. */
export interface Wanted {
  name: string;
  /** `null`: a hybrid that was made here. */
  source: Source | null;
}

export type Phase =
  | { kind: 'none' }
  | { kind: 'loading'; wanted: Wanted; progress: Progress | null }
  | { kind: 'ready'; wanted: Wanted; model: Model }
  | { kind: 'failed'; wanted: Wanted; error: unknown }
  /** The model worked until the device went. */
  | { kind: 'lost'; wanted: Wanted; error: unknown };

export const phase = new Value<Phase>({ kind: 'none' });

/** What has to happen while a model that will be closed still works. */
export const closing = new Set<() => Promise<void>>();

let loading: AbortController | null = null;

export function model(): Model | null {
  const now = phase.get();
  return now.kind === 'ready' ? now.model : null;
}

/** What an address or a stored name is called. */
export function nameOf(source: Source): string {
  if (typeof source === 'string' || source instanceof URL) {
    const text = String(source).replace(/^stored:/, '');
    return decodeURIComponent(text.split(/[?#]/)[0]!.split('/').filter(Boolean).pop() ?? text);
  }
  if (source instanceof File) return source.name;
  if (source instanceof FileList || Array.isArray(source)) {
    const files = [...source];
    return (files.find(file => /\.(gguf|safetensors|mbjs|bin)$/i.test(file.name)) ?? files[0])?.name ?? 'a model';
  }
  return source instanceof Blob ? 'a model' : (source.name ?? 'a model');
}

/** Opens a model in place of the one before. Errors become a phase; nothing is thrown. */
export async function open(source: Source, name = nameOf(source)): Promise<Model | null> {
  const wanted: Wanted = { name, source };
  const { device, context } = settings.get();
  return become(wanted, (signal, onProgress) => {
    const options: LoadOptions = { device, signal, onProgress };
    if (context !== null) options.context = context;
    return Selkie.load(source, options);
  });
}

/** A hybrid with fresh weights. */
export async function create(config: string, name: string): Promise<Model | null> {
  return become({ name, source: null }, () => Selkie.create(config));
}

type Make = (signal: AbortSignal, onProgress: (progress: Progress) => void) => Promise<Model>;

async function become(wanted: Wanted, make: Make): Promise<Model | null> {
  loading?.abort();
  const control = new AbortController();
  loading = control;
  await close();
  if (control.signal.aborted) return null;
  phase.set({ kind: 'loading', wanted, progress: null });
  try {
    const made = await make(control.signal, progress => {
      if (loading === control) phase.set({ kind: 'loading', wanted, progress });
    });
    if (loading !== control) {
      made.dispose();
      return null;
    }
    loading = null;
    phase.set({ kind: 'ready', wanted, model: made });
    void watch(made, wanted);
    return made;
  } catch (error) {
    if (loading !== control) return null;
    loading = null;
    phase.set(isAbort(error) ? { kind: 'none' } : { kind: 'failed', wanted, error });
    return null;
  }
}

async function watch(opened: Model, wanted: Wanted): Promise<void> {
  const error = await opened.lost;
  if (model() === opened) phase.set({ kind: 'lost', wanted, error });
}

/** Whether a model has just ended: its calls fail a moment before it says so. */
export async function isGone(opened: Model): Promise<boolean> {
  const soon = new Promise<boolean>(resolve => setTimeout(() => resolve(false)));
  return Promise.race([opened.lost.then(() => true), soon]);
}

export function isLoss(error: unknown): boolean {
  return error instanceof SelkieError && error.code === 'device-lost';
}

export function cancel(): void {
  loading?.abort();
}

/** Closes what is open; says so to no one where nothing is. */
export async function close(): Promise<void> {
  const opened = model();
  if (opened) await Promise.all([...closing].map(run => run()));
  if (phase.get().kind !== 'none') phase.set({ kind: 'none' });
  opened?.dispose();
}

/** Opens again what was open, as the settings are now. */
export async function reopen(): Promise<void> {
  const now = phase.get();
  if (now.kind === 'none' || now.wanted.source === null) return;
  await open(now.wanted.source, now.wanted.name);
}
