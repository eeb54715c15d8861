import type { ErrorCode } from './types';

/** What everything here rejects with: `code` is for programs, `message` for people. */
export class SelkieError extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = 'SelkieError';
    this.code = code;
  }
}

/** An error as it crosses the border of the worker, where classes are lost. */
export interface WireError {
  code: ErrorCode;
  message: string;
  stack: string | undefined;
}

const codes: Record<ErrorCode, true> = {
  aborted: true, network: true, 'not-found': true, file: true, unsupported: true, 'out-of-memory': true, 'no-gpu': true,
  'device-lost': true, device: true, context: true, argument: true, storage: true, disposed: true, internal: true,
};

/** Names of the browser's own exceptions that say what happened. */
const named: Record<string, ErrorCode> = {
  AbortError: 'aborted',
  QuotaExceededError: 'storage',
  NoModificationAllowedError: 'storage',
  // A file that changed or vanished since it was chosen.
  NotFoundError: 'file',
  NotReadableError: 'file',
};

function codeOf(error: unknown): ErrorCode {
  if (typeof error !== 'object' || error === null) return 'internal';
  if ('code' in error && typeof error.code === 'string' && error.code in codes) return error.code as ErrorCode;
  const name = 'name' in error ? String(error.name) : '';
  return (Object.hasOwn(named, name) ? named[name] : undefined) ?? 'internal';
}

/** Any thrown value as a `SelkieError`. */
export function asSelkieError(error: unknown): SelkieError {
  if (error instanceof SelkieError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new SelkieError(codeOf(error), message, { cause: error });
}

export function toWire(error: unknown): WireError {
  const { code, message, stack } = asSelkieError(error);
  return { code, message, stack };
}

export function fromWire({ code, message, stack }: WireError): SelkieError {
  const error = new SelkieError(code, message);
  // Where it happened says more than where it arrived.
  if (stack !== undefined) error.stack = stack;
  return error;
}

export function aborted(): SelkieError {
  return new SelkieError('aborted', 'cancelled');
}

/** Bytes for people: in thousands, as the browsers' own dialogues count. */
export function bytes(count: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  const unit = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(count, 1)) / 3));
  return `${(count / 1000 ** unit).toFixed(unit === 0 ? 0 : 1)} ${units[unit]}`;
}
