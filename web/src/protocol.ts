// What the main thread and the worker say to each other.

import type { WireError } from './errors';
import type { Check, DeviceReport, MatrixInfo, ModelInfo, Parameter, Plane, Progress, Result } from './types';
import type { WasmGenerate, WasmOptions } from './wasm';

/** A file, or its address, which is absolute. */
export type SentFile = string | Blob;

/** A `Source` as it can be cloned: relative addresses are the page's, so they are resolved there. */
export type SentSource =
  | { kind: 'url'; url: string }
  | { kind: 'stored'; name: string }
  | { kind: 'files'; files: Blob[] }
  | { kind: 'parts'; parts: SentParts };

export interface SentParts {
  name?: string;
  weights: SentFile[];
  index?: SentFile;
  config?: SentFile;
  tokenizer?: SentFile;
  tokenizerConfig?: SentFile;
  chatTemplate?: SentFile;
}

export interface SentOptions extends WasmOptions {
  keep: boolean;
}

/** What a text follows: a conversation, or text as it stands. */
export type Prompt = { messages: string } | { text: string } | { ids: Uint32Array };

/** `maxTokens` is what is left of the state where it is not said. */
export type SentGenerate = Omit<WasmGenerate, 'maxTokens'> & { maxTokens?: number };

export interface HybridSampling {
  temperature?: number;
  topK?: number;
  topP?: number;
  seed?: number;
}

/** The model's first state. */
export const FIRST_STATE = 0;

/** What the worker does. States are known by numbers. */
export interface Methods {
  load(source: SentSource, options: SentOptions): ModelInfo;
  create(config: string, options: SentOptions): ModelInfo;
  device(measure: boolean): DeviceReport;
  generate(prompt: Prompt, options: SentGenerate, state: number): Result;
  tokenize(text: string, special: boolean): Uint32Array;
  detokenize(ids: Uint32Array): string;
  embed(input: string | Uint32Array): Float32Array;
  matrices(): MatrixInfo[];
  check(matrix: string | undefined): Check[];
  newState(): number;
  forkState(state: number): number;
  stateLength(state: number): number;
  clearState(state: number): void;
  saveState(state: number, text: string | undefined): Uint8Array;
  /** Gives the JSON that was kept with it. */
  loadState(state: number, file: Uint8Array): string | undefined;
  planes(state: number): Plane[];
  freeState(state: number): void;
  forward(ids: Uint32Array, batch: number, seqLen: number): Float32Array;
  hybridGenerate(ids: Uint32Array, n: number, options: HybridSampling): Uint32Array;
  parameters(): Parameter[];
  exportMbjs(fp16: boolean, trailer: boolean): Uint8Array;
  importMbjs(file: Uint8Array): void;
}

export type Method = keyof Methods;

/** What comes before an answer. */
export type CallEvent =
  | { kind: 'progress'; progress: Progress }
  | { kind: 'prompt'; read: number; of: number }
  | { kind: 'text'; text: string };

/** One call, its arguments typed by its method. `stopped`: it was cancelled before it was made. */
export type Call = { [M in Method]: { call: number; method: M; args: Parameters<Methods[M]>; stopped: boolean } }[Method];

export type ToWorker = Call | { cancel: number };

export type FromWorker =
  | { done: number; value: unknown }
  | { failed: number; error: WireError }
  | { event: number; what: CallEvent }
  /** The GPU's device is gone, or the wasm module broke: nothing works any more. */
  | { lost: WireError };
