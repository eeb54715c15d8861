// Two tabs that want the same file: one fetches, the other looks on.

import { aborted } from '../errors';
import { hold } from './files';
import type { Meter } from './meter';

interface Told {
  lock: string;
  file: string;
  have: number;
  size: number;
}

const CHANNEL = 'selkie:downloads';
/** Milliseconds between two messages to the other tabs. */
const PERIOD = 200;

/** The right to fetch a file. */
export class Turn {
  #release: () => void;
  #channel = new BroadcastChannel(CHANNEL);
  #lock: string;
  #timer: ReturnType<typeof setInterval> | undefined;

  private constructor(lock: string, release: () => void) {
    this.#lock = lock;
    this.#release = release;
  }

  /** Waits until nobody else fetches `file`. */
  static async take(lock: string, file: string, meter: Meter, signal: AbortSignal): Promise<Turn> {
    const release = await hold(lock, { ifAvailable: true }) ?? await watch(lock, file, meter, signal);
    return new Turn(lock, release);
  }

  /** Tells the other tabs, from time to time, what `state` says. */
  tell(file: string, state: () => { have: number; size: number }): void {
    const tell = () => this.#channel.postMessage({ lock: this.#lock, file, ...state() } satisfies Told);
    this.#timer = setInterval(tell, PERIOD);
  }

  end(): void {
    clearInterval(this.#timer);
    this.#channel.close();
    this.#release();
  }
}

async function watch(lock: string, file: string, meter: Meter, signal: AbortSignal): Promise<() => void> {
  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = ({ data }: MessageEvent<Told>) => {
    if (data.lock !== lock) return;
    meter.expect(file, data.size);
    meter.have(file, data.have);
  };
  try {
    const release = await hold(lock, { signal });
    if (!release) throw aborted();
    return release;
  } finally {
    channel.close();
  }
}
