// What the worker sees of the wasm module that crates/selkie-web compiles to.

/** Bytes that are read in ranges: a file, a download that is still coming in, or what the browser keeps. */
export interface ByteSource {
  name: string;
  size: number;
  /** Bytes `start..end`. Waits where a download has not come that far. */
  read(start: number, end: number): Promise<Uint8Array>;
}

export interface WasmFiles {
  name: string;
  weights: ByteSource[];
  index?: Uint8Array;
  config?: Uint8Array;
  tokenizer?: Uint8Array;
  tokenizerConfig?: Uint8Array;
  chatTemplate?: Uint8Array;
}

export interface WasmHooks {
  /** `load` counts bytes, `compile` pipelines. */
  progress(stage: 'load' | 'compile', done: number, total: number): void;
  /** Asked between all steps; true ends with the error `aborted`. */
  stopped(): boolean;
}

/** JSON of `load` and `create`. */
export interface WasmOptions {
  device: 'auto' | 'webgpu' | 'cpu';
  context?: number;
  memory?: number;
  exact?: boolean;
  /** Whether devices come with subgroups. */
  subgroups?: boolean;
  /** Of a fresh hybrid, where its configuration has none. */
  seed?: number;
}

/** JSON of `generate`. */
export interface WasmGenerate {
  maxTokens: number;
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
  frequencyPenalty: number;
  presencePenalty: number;
  logitBias: [number, number][];
  seed: number;
  stop: string[];
  ignoreEos: boolean;
}

/** JSON that `generate` gives. */
export interface WasmGenerated {
  text: string;
  ids: number[];
  finish: 'stop' | 'length' | 'cancelled';
  promptTokens: number;
  promptSeconds: number;
  decodedTokens: number;
  decodeSeconds: number;
}

export interface WasmSession {
  length(): number;
  capacity(): number;
  tokens(): Uint32Array;
  fork(): WasmSession;
  free(): void;
}

/** Tells of the prompt (tokens read, of how many) and of text; `false` ends the text. */
export type OnEvent = (kind: 'prompt' | 'text', value: number | string, of?: number) => boolean;

/** One call at a time: the worker queues them. Errors are `Error`s with a `code` of `ErrorCode`. */
export interface WasmModel {
  /** JSON of `ModelInfo`. */
  info(): string;
  tokenize(text: string, special: boolean): Uint32Array;
  detokenize(ids: Uint32Array): string;
  /** The prompt of a JSON list of messages; its special tokens count. */
  chatPrompt(messages: string): Uint32Array;
  newSession(capacity: number): Promise<WasmSession>;
  /** Reads what `prompt` has beyond what the session holds, and goes on. */
  generate(session: WasmSession, prompt: Uint32Array, options: string, onEvent: OnEvent): Promise<string>;
  embed(ids: Uint32Array): Promise<Float32Array>;
  saveState(session: WasmSession, text: string | undefined): Promise<Uint8Array>;
  /** The session, and `takeText()` gives the JSON that was kept with it. */
  loadState(file: Uint8Array, capacity: number): Promise<WasmSession>;
  takeText(): string | undefined;
  /** A list of `Plane`s. */
  planes(session: WasmSession): Promise<unknown[]>;
  /** JSON of `MatrixInfo[]`. */
  matrices(): string;
  /** JSON of `Check[]`: the kernels' self-test, or a matrix's product against its f32 and f64 products. */
  check(matrix: string | undefined): Promise<string>;
  // Hybrids of the first prototype.
  forward(ids: Uint32Array, batch: number, seqLen: number): Promise<Float32Array>;
  hybridGenerate(ids: Uint32Array, n: number, options: string): Promise<Uint32Array>;
  /** A list of `{ name, shape, values }`. */
  parameters(): Promise<unknown[]>;
  exportMbjs(fp16: boolean, trailer: boolean): Promise<Uint8Array>;
  importMbjs(file: Uint8Array): Promise<void>;
  free(): void;
}

export interface WasmModule {
  default(input?: unknown): Promise<unknown>;
  /** JSON of `DeviceReport` without what only the page knows. `measure`: bandwidth and dispatch cost, too. */
  deviceReport(measure: boolean, subgroups: boolean): Promise<string>;
  WasmModel: {
    load(files: WasmFiles, options: string, hooks: WasmHooks): Promise<WasmModel>;
    /** A hybrid with fresh weights, of its JSON configuration. */
    create(config: string, options: string, hooks: WasmHooks): Promise<WasmModel>;
  };
}
