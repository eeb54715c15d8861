// A trace as a picture: samples from left to right, layers and their channels from top to bottom.

import type { Trace, Track } from './trace';

/** Channels `from..to` of a layer. */
export interface Row {
  layer: number;
  from: number;
  to: number;
}

export interface Grid {
  rows: Row[];
  /** Positions of the samples. */
  columns: number[];
  /** `[rows, columns]`. */
  values: Float32Array;
  /** The smallest above zero, and the largest. */
  least: number;
  most: number;
}

/** Rows of a layer where all are shown: fewer where there are many layers. */
function few(layers: number): number {
  return Math.max(2, Math.min(8, Math.floor(110 / layers)));
}

/** Of one kind of state: of all layers, or of one with all its bins. `relative`: each row in parts of its own mean. */
export function gridOf(trace: Trace, name: string, layer: number | null, relative: boolean): Grid | null {
  const columns = trace.samples.map(({ tracks }) =>
    tracks.filter(track => track.name === name && (layer === null || track.layer === layer)),
  );
  const first = columns.at(-1);
  if (!first || first.length === 0) return null;
  const most = layer === null ? few(first.length) : Infinity;
  const rows = first.flatMap(track => rowsOf(track, most));
  const values = new Float32Array(rows.length * columns.length);
  columns.forEach((tracks, column) => {
    let row = 0;
    for (const track of tracks) {
      const count = Math.min(most, track.bins.length);
      for (let part = 0; part < count && row < rows.length; part += 1, row += 1) {
        values[row * columns.length + column] = rootMeanSquare(track.bins, part, count);
      }
    }
  });
  if (relative) divideByMeans(values, columns.length);
  let least = Infinity;
  let largest = 0;
  for (const value of values) {
    if (value > 0 && value < least) least = value;
    if (value > largest) largest = value;
  }
  return {
    rows,
    columns: trace.samples.map(({ position }) => position),
    values,
    least: Math.min(least, largest),
    most: largest,
  };
}

function divideByMeans(values: Float32Array, columns: number): void {
  for (let start = 0; start < values.length; start += columns) {
    const row = values.subarray(start, start + columns);
    const mean = row.reduce((sum, value) => sum + value, 0) / columns;
    if (mean > 0) row.forEach((value, at) => (row[at] = value / mean));
  }
}

function rowsOf({ layer, rows, bins }: Track, most: number): Row[] {
  const count = Math.min(most, bins.length);
  return Array.from({ length: count }, (_, part) => ({
    layer,
    from: Math.floor((part * rows) / count),
    to: Math.floor(((part + 1) * rows) / count),
  }));
}

function rootMeanSquare(bins: Float32Array, part: number, count: number): number {
  const from = Math.floor((part * bins.length) / count);
  const to = Math.floor(((part + 1) * bins.length) / count);
  let sum = 0;
  for (let at = from; at < to; at += 1) sum += bins[at]! ** 2;
  return Math.sqrt(sum / Math.max(1, to - from));
}

/** Where a value lies between the least and the most, by its logarithm: 0 to 1. */
export function share(value: number, { least, most }: Grid): number {
  if (!(value > 0)) return 0;
  if (most <= least) return 1;
  return Math.min(1, Math.max(0, Math.log(value / least) / Math.log(most / least)));
}

/** Cividis: its brightness grows evenly, and people who see two of three colours see the same order. */
const STOPS: [number, number, number][] = [
  [0, 34, 78],
  [30, 58, 111],
  [66, 78, 108],
  [94, 98, 110],
  [122, 119, 120],
  [152, 141, 118],
  [185, 166, 107],
  [220, 193, 88],
  [254, 232, 56],
];

export function colour(share: number): [number, number, number] {
  const at = share * (STOPS.length - 1);
  const from = Math.min(STOPS.length - 2, Math.floor(at));
  const [a, b] = [STOPS[from]!, STOPS[from + 1]!];
  const mix = (channel: 0 | 1 | 2) => Math.round(a[channel] + (b[channel] - a[channel]) * (at - from));
  return [mix(0), mix(1), mix(2)];
}
