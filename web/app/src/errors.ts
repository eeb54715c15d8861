import { SelkieError, type ErrorCode } from './engine';

export interface Explanation {
  code: ErrorCode | 'unknown';
  title: string;
  text: string;
}

/** What happened, and what a visitor can do about it. */
const SENTENCES: Record<ErrorCode, [title: string, advice: string]> = {
  aborted: ['Stopped', ''],
  network: [
    'The download did not get through',
    'Check the connection and try again: it goes on where it ended. The server also has to allow other sites to read the file (CORS).',
  ],
  'not-found': [
    'There is no such file',
    'Check the address: it has to lead to the file itself, not to a page about it.',
  ],
  file: [
    'This file cannot be read',
    'It may be damaged or cut short. Delete it under Models and fetch it again, or choose another.',
  ],
  unsupported: [
    'Selkie does not know this kind of model',
    'Choose a .gguf, .safetensors or .mbjs file of a family that it runs.',
  ],
  'out-of-memory': [
    'There is not enough memory for this',
    'Choose a smaller model or a shorter context in Settings, or close other tabs.',
  ],
  'no-gpu': [
    'There is no GPU that this tab can use',
    'Set the device to “automatic” or “CPU” in Settings and open the model again.',
  ],
  'device-lost': [
    'The GPU went away',
    'The driver was reset or the system took it back. The conversation is kept; open the model again to go on.',
  ],
  device: ['The GPU reported an error', 'Open the model again; if it stays so, set the device to “CPU” in Settings.'],
  context: [
    'The conversation is longer than the context',
    'Start a new one, shorten an earlier question, or set a longer context in Settings.',
  ],
  argument: ['That does not go', ''],
  storage: ['The browser has no room for this', 'Delete a model under Models, or allow this site more storage.'],
  disposed: ['The model was closed', 'Open it again under Models.'],
  internal: ['Something in Selkie went wrong', 'Open the model again, and please report it with these words.'],
};

export function explain(error: unknown): Explanation {
  const detail = error instanceof Error ? error.message : String(error);
  if (error instanceof SelkieError) {
    const [title, advice] = SENTENCES[error.code] ?? SENTENCES.internal;
    return { code: error.code, title, text: sentence(detail, advice) };
  }
  if (error instanceof DOMException && error.name === 'QuotaExceededError') {
    const [title, advice] = SENTENCES.storage;
    return { code: 'storage', title, text: sentence(detail, advice) };
  }
  return { code: 'unknown', title: 'Something went wrong', text: detail };
}

function sentence(detail: string, advice: string): string {
  if (!advice) return detail;
  if (!detail) return advice;
  // An address keeps its small letters.
  const whole = detail.startsWith('http') ? detail : detail.charAt(0).toUpperCase() + detail.slice(1);
  return `${whole}${/[.!?]$/.test(whole) ? '' : '.'} ${advice}`;
}

/** Whether someone wanted it to end: by a stop, or by closing the model. */
export function isAbort(error: unknown): boolean {
  return (
    (error instanceof SelkieError && (error.code === 'aborted' || error.code === 'disposed')) ||
    (error instanceof DOMException && error.name === 'AbortError')
  );
}
