import type { Device, GenerateOptions } from './engine';
import { Value } from './value';

export type Theme = 'auto' | 'light' | 'dark';

export interface Settings {
  theme: Theme;
  system: string;
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
  /** `null`: another one each time. */
  seed: number | null;
  maxTokens: number;
  /** `null`: what the package chooses. */
  context: number | null;
  device: Device;
  /** Whether a conversation keeps the model's state. */
  keepState: boolean;
}

export const DEFAULTS: Settings = {
  theme: 'auto',
  system: '',
  temperature: 0.7,
  topK: 40,
  topP: 0.95,
  minP: 0.05,
  repetitionPenalty: 1.1,
  seed: null,
  maxTokens: 1024,
  context: null,
  device: 'auto',
  keepState: true,
};

const KEY = 'selkie.settings';

/** What is stored may be of another version, or written by hand: only values of the right kind count. */
function stored(): Settings {
  const settings: Settings = { ...DEFAULTS };
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? '{}') as Record<string, unknown>;
    for (const key of Object.keys(DEFAULTS) as (keyof Settings)[]) {
      const value = found[key];
      const fits =
        key === 'seed' || key === 'context'
          ? value === null || typeof value === 'number'
          : typeof value === typeof DEFAULTS[key];
      if (fits) Object.assign(settings, { [key]: value });
    }
  } catch {
    // Not readable, or storage is refused: the defaults hold.
  }
  return settings;
}

export const settings = new Value<Settings>(stored());

/** What another tab changes holds here, too. */
addEventListener('storage', ({ key }) => {
  if (key === KEY) settings.set(stored());
});

export function change(part: Partial<Settings>): void {
  settings.set({ ...settings.get(), ...part });
  try {
    localStorage.setItem(KEY, JSON.stringify(settings.get()));
  } catch {
    // Storage is refused: the settings hold until the tab closes.
  }
}

/** The part that an answer is made with. */
export function sampling(): GenerateOptions {
  const { temperature, topK, topP, minP, repetitionPenalty, seed, maxTokens } = settings.get();
  return {
    temperature,
    topK,
    topP,
    minP,
    repetitionPenalty,
    maxTokens,
    seed: seed ?? crypto.getRandomValues(new Uint32Array(1))[0]!,
  };
}
