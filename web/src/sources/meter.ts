import type { Progress } from '../types';

/** Milliseconds between two reports. */
const PERIOD = 100;
/** Milliseconds over which the rate is taken. */
const WINDOW = 5000;

type Figures = Omit<Progress, 'bytesPerSecond' | 'secondsLeft'>;

/** Counts what all files of a model have, and tells of it. */
export class Meter {
  #report: (progress: Progress) => void;
  #files = new Map<string, { have: number; size: number }>();
  #samples: { time: number; bytes: number }[] = [];
  #last = -Infinity;
  #stage: Progress['stage'] | null = null;
  #stored = true;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(report: (progress: Progress) => void) {
    this.#report = report;
  }

  expect(name: string, size: number): void {
    const file = this.#files.get(name);
    if (file) file.size = size;
    else this.#files.set(name, { have: 0, size });
  }

  /** All of `name` is there without having been fetched now. */
  there(name: string, size: number): void {
    this.#files.set(name, { have: size, size });
  }

  /** Of `name`, so much has been downloaded. */
  have(name: string, have: number): void {
    this.#stored = false;
    const file = this.#files.get(name) ?? { have: 0, size: 0 };
    this.#files.set(name, { have, size: Math.max(file.size, have) });
    this.#tell({ stage: 'download', ...this.#sum(), file: name, stored: false });
  }

  /** What the wasm module says. While files come in, their bytes say more than those that are loaded already. */
  step(stage: 'load' | 'compile', loaded: number, total: number, file: string): void {
    const sum = this.#sum();
    if (stage === 'load' && !this.#stored && sum.loaded < sum.total) return;
    this.#tell({ stage, loaded, total, file, stored: this.#stored });
  }

  /** Nothing more is told. */
  end(): void {
    clearTimeout(this.#timer);
  }

  ready(file: string): void {
    const { total } = this.#sum();
    this.#tell({ stage: 'ready', loaded: total, total, file, stored: this.#stored });
  }

  #sum(): { loaded: number; total: number } {
    const files = [...this.#files.values()];
    return { loaded: files.reduce((sum, { have }) => sum + have, 0), total: files.reduce((sum, { size }) => sum + size, 0) };
  }

  #tell(figures: Figures): void {
    const now = performance.now();
    if (figures.stage !== this.#stage) {
      this.#samples = [];
      this.#last = -Infinity;
      this.#stage = figures.stage;
    }
    clearTimeout(this.#timer);
    const wait = figures.loaded >= figures.total ? 0 : this.#last + PERIOD - now;
    if (wait > 0) {
      // Where nothing more comes, this is what there is to tell.
      this.#timer = setTimeout(() => this.#tell(figures), wait);
      return;
    }
    this.#last = now;
    this.#samples.push({ time: now, bytes: figures.loaded });
    while (this.#samples.length > 2 && now - (this.#samples[0]?.time ?? now) > WINDOW) this.#samples.shift();
    const first = this.#samples[0] ?? { time: now, bytes: figures.loaded };
    const seconds = (now - first.time) / 1000;
    const inBytes = figures.stage === 'download' || figures.stage === 'load';
    // What was there before does not count, nor does a file that starts over.
    const bytesPerSecond = inBytes && seconds > 0 ? Math.max(0, (figures.loaded - first.bytes) / seconds) : 0;
    const secondsLeft = bytesPerSecond > 0 ? Math.max(0, figures.total - figures.loaded) / bytesPerSecond : null;
    this.#report({ ...figures, bytesPerSecond, secondsLeft });
  }
}
