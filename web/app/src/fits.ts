// Whether a model goes into this machine, by what the browser tells of it.

import { Selkie, type DeviceReport } from './engine';
import { bytes as show } from './format';
import { settings } from './settings';
import { Value } from './value';

export interface Machine {
  /** `null` until it is known. */
  device: DeviceReport | null;
  /** Bytes that the browser may still keep. */
  room: number | null;
  /** Bytes of memory; the browser tells at most 8 GB. */
  memory: number | null;
}

export interface Verdict {
  level: 'fits' | 'tight' | 'no';
  label: string;
  detail: string;
}

export const machine = new Value<Machine>({ device: null, room: null, memory: null });

/** On the CPU a model lies in wasm memory, which ends at 4 GB; as much beside it for the state and the page. */
const WASM_BYTES = 4e9;
const BESIDE = 300e6;

export async function lookAround(measure = false): Promise<DeviceReport> {
  const memory = (navigator as Navigator & { deviceMemory?: number }).deviceMemory;
  const device = await Selkie.device(measure);
  machine.set({ device, room: await room(), memory: memory === undefined ? null : memory * 1e9 });
  return device;
}

async function room(): Promise<number | null> {
  try {
    const { quota, usage } = await navigator.storage.estimate();
    return quota === undefined ? null : quota - (usage ?? 0);
  } catch {
    return null;
  }
}

export function usesGpu({ device }: Machine): boolean {
  const wanted = settings.get().device;
  if (wanted === 'cpu' || !device?.adapter) return false;
  return wanted === 'webgpu' || !device.adapter.software;
}

/** `stored`: its bytes lie in the browser already. */
export function judge(bytes: number, now: Machine, stored = false): Verdict | null {
  if (!now.device) return null;
  const need = bytes + BESIDE;
  const gpu = usesGpu(now);
  if (!stored && now.room !== null && bytes > now.room) {
    return {
      level: 'no',
      label: 'No room',
      detail: `The browser can keep ${show(now.room)} more, the file has ${show(bytes)}.`,
    };
  }
  if (!gpu && need > WASM_BYTES) {
    return {
      level: 'no',
      label: 'Doesn’t fit',
      detail: `On the CPU it takes ${show(need)}; a tab has ${show(WASM_BYTES)}.`,
    };
  }
  if (now.memory !== null && now.memory < 8e9 && need > 0.7 * now.memory) {
    return {
      level: 'no',
      label: 'Doesn’t fit',
      detail: `It takes about ${show(need)} of ${show(now.memory)} of memory.`,
    };
  }
  if (!gpu && bytes > 600e6) {
    return { level: 'tight', label: 'Slow here', detail: `Without a GPU each token reads ${show(bytes)}.` };
  }
  if (now.memory !== null && need > 0.5 * now.memory) {
    const of = `${now.memory >= 8e9 ? '8 GB or more' : show(now.memory)}`;
    return { level: 'tight', label: 'May be tight', detail: `It takes about ${show(need)}; this machine has ${of}.` };
  }
  return { level: 'fits', label: 'Fits', detail: `It takes about ${show(need)}${gpu ? ' of the GPU’s memory' : ''}.` };
}
