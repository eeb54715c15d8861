// Samples of the recurrent state over time, reduced to one number a channel: the whole would not fit for long.

import type { Model, Plane } from './engine';
import { route } from './router';
import { Value } from './value';

/** Root mean squares of the rows of one plane, averaged into at most `MOST_BINS` bins. */
export interface Track {
  layer: number;
  name: string;
  rows: number;
  bins: Float32Array;
}

export interface Sample {
  /** Positions that the state held. */
  position: number;
  tracks: Track[];
}

export interface Trace {
  modelId: string;
  samples: Sample[];
}

const MOST_BINS = 64;
const MOST_SAMPLES = 512;

/** Pieces of text between two samples, where it is watched while it answers. */
const EVERY = 8;

export const trace = new Value<Trace>({ modelId: '', samples: [] });

/** Whether to sample while an answer comes: each sample reads all states back. */
export const closely = new Value(false);

/** Milliseconds beyond which a sample is only taken where it is looked at: some states are hundreds of megabytes. */
const SLOW = 800;

let busy = false;
let slow: string | null = null;

export function sampleDuring(model: Model, pieces: number): void {
  if (closely.get() && pieces % EVERY === 0) void sample(model);
}

/** Adds how the state is now. Samples that come while one is read are left out. */
export async function sample(model: Model): Promise<void> {
  if (busy || !model.info.recurrent || (slow === model.info.id && route.get() !== 'state')) return;
  busy = true;
  const began = performance.now();
  try {
    const planes = await model.state.planes();
    const position = await model.state.length();
    if (performance.now() - began > SLOW) slow = model.info.id;
    add(model.info.id, { position, tracks: planes.map(reduce) });
  } catch {
    // A model that was closed meanwhile has no state: there is nothing to show.
  } finally {
    busy = false;
  }
}

function add(modelId: string, next: Sample): void {
  const before = trace.get();
  const samples = before.modelId === modelId ? [...before.samples] : [];
  // Where the conversation was taken back, so is the time axis.
  while (samples.length > 0 && samples[samples.length - 1]!.position >= next.position) samples.pop();
  samples.push(next);
  trace.set({ modelId, samples: samples.length > MOST_SAMPLES ? thin(samples) : samples });
}

/** Every other one of the older half. */
function thin(samples: Sample[]): Sample[] {
  const half = samples.length / 2;
  return samples.filter((_, at) => at >= half || at % 2 === 0);
}

export function clearTrace(): void {
  trace.set({ modelId: '', samples: [] });
}

/** `[rows, cols]` to the rows' root mean squares, in bins. */
export function reduce(plane: Plane): Track {
  const rows = plane.shape[0] ?? 1;
  const cols = rows > 0 ? plane.values.length / rows : 0;
  const count = Math.min(rows, MOST_BINS);
  const bins = new Float32Array(count);
  for (let bin = 0; bin < count; bin += 1) {
    const from = Math.floor((bin * rows) / count);
    const to = Math.floor(((bin + 1) * rows) / count);
    let sum = 0;
    for (let at = from * cols; at < to * cols; at += 1) sum += plane.values[at]! ** 2;
    bins[bin] = Math.sqrt(sum / Math.max(1, (to - from) * cols));
  }
  return { layer: plane.layer, name: plane.name, rows, bins };
}
