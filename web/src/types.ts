// What `selkie-web` offers: see README.md for examples. Nothing here runs; the page and the worker share these types.

/** Where one file comes from. */
export type FileSource = string | URL | File | Blob;

/** The files of a model that does not lie in one `.gguf`. */
export interface ModelFiles {
  /** What messages call it. */
  name?: string;
  /** `.gguf`, `.safetensors` or `.mbjs`; all parts of a split one, in order. */
  weights: FileSource | FileSource[];
  /** `model.safetensors.index.json`, where there are several. */
  index?: FileSource;
  /** `config.json`: for safetensors and MBJS. */
  config?: FileSource;
  tokenizer?: FileSource;
  tokenizerConfig?: FileSource;
  chatTemplate?: FileSource;
}

/** An address, a file, several files as they were dropped, or `stored:NAME` for what `Selkie.store` lists. */
export type Source = FileSource | FileList | File[] | ModelFiles;

export type Device = 'auto' | 'webgpu' | 'cpu';

export interface LoadOptions {
  onProgress?: (progress: Progress) => void;
  /** `auto`: a GPU that is no software, else the CPU. */
  device?: Device;
  signal?: AbortSignal;
  /** Positions of a conversation: 4096 at most where it is not said, and what the model was made for. */
  context?: number;
  /** Whether what is fetched is kept in the browser's files; true where it is not said. */
  keep?: boolean;
  /** Bytes that the model may take at most, where the browser does not tell how many there are. */
  memory?: number;
  /** f32 throughout, for comparison with references. */
  exact?: boolean;
}

export interface Progress {
  stage: 'download' | 'load' | 'compile' | 'ready';
  /** Bytes, or pipelines while compiling. */
  loaded: number;
  total: number;
  bytesPerSecond: number;
  /** Seconds, where it can be told. */
  secondsLeft: number | null;
  /** The file that is being read. */
  file: string;
  /** Whether it comes from the browser's files. */
  stored: boolean;
}

export interface ModelInfo {
  name: string;
  /** Distinguishes models whose states do not fit each other: 32 hexadecimal digits. */
  id: string;
  architecture: string;
  /** `webgpu` or `cpu`. */
  backend: 'webgpu' | 'cpu';
  device: string;
  /** Why it does not run on a GPU, where it does not. */
  fallback: string | null;
  bytes: number;
  context: number;
  modelContext: number | null;
  vocabSize: number;
  dModel: number;
  layers: number;
  /** One word a layer: `attention`, `mamba`, `mamba2`, ... */
  schedule: string[];
  hasChatTemplate: boolean;
  hasTokenizer: boolean;
  recurrent: boolean;
  /** Whether it is one of the first prototype's, so that `Selkie.load` gives a `Hybrid`. */
  hybrid: boolean;
}

export interface Sampling {
  /** 0: the likeliest token. */
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  /** Token id to what is added to its logit. */
  logitBias?: Record<number, number>;
  /** The same seed gives the same text. */
  seed?: number;
}

export interface GenerateOptions extends Sampling {
  maxTokens?: number;
  stop?: string | string[];
  ignoreEos?: boolean;
  signal?: AbortSignal;
  /** Each piece of text as it comes. */
  onToken?: (text: string) => void;
  /** Tokens of the prompt that are in, of those to read. */
  onPrompt?: (read: number, of: number) => void;
  /** The state to continue; `model.state` where none is given. */
  state?: State;
}

export interface Message {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string;
}

export interface Result {
  text: string;
  ids: Uint32Array;
  finish: 'stop' | 'length' | 'cancelled';
  promptTokens: number;
  /** Those that the state held already. */
  cachedTokens: number;
  newTokens: number;
  promptSeconds: number;
  decodeSeconds: number;
  promptPerSecond: number;
  decodePerSecond: number;
  /** Positions that the state holds, and could. */
  contextUsed: number;
  contextSize: number;
}

/** A text on its way: iterate its pieces, or await the whole. Both at once work, too. */
export interface Generation extends AsyncIterable<string>, PromiseLike<Result> {}

/** What a sequence of tokens left in the model: a value. */
export interface State {
  /** Positions that it holds. */
  length(): Promise<number>;
  /** A copy: what happens to one no longer touches the other. */
  fork(): Promise<State>;
  /** As a file that any Selkie with the same model goes on from; `text` is kept with it. */
  save(text?: unknown): Promise<Uint8Array>;
  /** Becomes what a file says; gives the text that was kept with it. */
  load(file: Uint8Array | ArrayBuffer | Blob): Promise<unknown>;
  clear(): Promise<void>;
  /** The recurrent states, for people to look at: each `[rows, cols]`. */
  planes(): Promise<Plane[]>;
  dispose(): void;
}

export interface Plane {
  layer: number;
  name: string;
  shape: number[];
  values: Float32Array;
}

/** A hybrid's parameter. */
export interface Parameter {
  name: string;
  shape: number[];
  values: Float32Array;
}

/** OpenAI's request, as far as it makes sense for one model in a tab. */
export interface ChatRequest {
  messages: Message[];
  model?: string;
  stream?: boolean;
  stream_options?: { include_usage?: boolean };
  temperature?: number | null;
  top_p?: number | null;
  max_tokens?: number | null;
  max_completion_tokens?: number | null;
  stop?: string | string[] | null;
  seed?: number | null;
  frequency_penalty?: number | null;
  presence_penalty?: number | null;
  logit_bias?: Record<string, number> | null;
  n?: number | null;
  /** Beyond OpenAI's. */
  top_k?: number | null;
  min_p?: number | null;
  repetition_penalty?: number | null;
  signal?: AbortSignal;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}

export type FinishReason = 'stop' | 'length' | null;

export interface ChatCompletion {
  id: string;
  object: 'chat.completion';
  created: number;
  model: string;
  choices: { index: 0; message: { role: 'assistant'; content: string }; finish_reason: FinishReason; logprobs: null }[];
  usage: Usage;
}

export interface ChatCompletionChunk {
  id: string;
  object: 'chat.completion.chunk';
  created: number;
  model: string;
  choices: { index: 0; delta: { role?: 'assistant'; content?: string }; finish_reason: FinishReason; logprobs: null }[];
  usage?: Usage | null;
}

/** What a device can do, as the conformance view shows it. */
export interface DeviceReport {
  /** `null` where there is no WebGPU. */
  adapter: {
    name: string;
    software: boolean;
    features: string[];
    limits: Record<string, number>;
    /** Bytes a second of a plain copy kernel, and seconds of one dispatch among many. */
    readBandwidth: number | null;
    dispatchSeconds: number | null;
  } | null;
  cpu: { simd: 'simd128' | 'relaxed'; };
  userAgent: string;
}

export interface Check {
  /** What was computed. */
  name: string;
  /** Largest difference, relative to the largest value of the reference. */
  error: number;
  tolerance: number;
  ok: boolean;
  milliseconds: number;
  detail: string;
}

/** A model's matrix. */
export interface MatrixInfo {
  name: string;
  shape: number[];
  type: string;
}

export interface StoredModel {
  /** What `stored:NAME` loads. */
  name: string;
  url: string;
  bytes: number;
  /** Bytes that are there; fewer where a download was cut. */
  have: number;
  sha256: string | null;
  /** Milliseconds since 1970. */
  used: number;
}

/** What went wrong. */
export type ErrorCode =
  | 'aborted'
  | 'network'
  | 'not-found'
  | 'file' // damaged, or of a kind that is not known
  | 'unsupported' // a model or setting that Selkie does not know
  | 'out-of-memory'
  | 'no-gpu'
  | 'device-lost'
  | 'device' // an error of the GPU
  | 'context' // too long
  | 'argument'
  | 'storage'
  | 'disposed'
  | 'internal';
