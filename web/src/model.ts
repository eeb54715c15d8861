import { Completions } from './completions';
import type { Connection } from './connection';
import { SelkieError } from './errors';
import { RunningGeneration } from './generation';
import { FIRST_STATE, type Prompt, type SentGenerate } from './protocol';
import { WorkerState } from './state';
import type { Check, GenerateOptions, Generation, MatrixInfo, Message, ModelInfo, State } from './types';

/** A model that answers. Calls are carried out one after the other, in the order in which they were made. */
export class Model {
  readonly info: ModelInfo;
  /** What `chat` and `complete` continue where they are given no other. */
  readonly state: State;
  /** `chat.completions.create` is OpenAI's, `chat` itself gives text as it comes. */
  readonly chat: Chat;
  /** Resolves when the model can answer no more though nobody disposed of it, as when the GPU is gone. */
  readonly lost: Promise<SelkieError>;
  /** @internal */
  protected readonly connection: Connection;

  /** @internal */
  constructor(connection: Connection, info: ModelInfo) {
    this.connection = connection;
    this.info = info;
    this.lost = connection.lost;
    this.state = new WorkerState(connection, FIRST_STATE);
    const chat = (messages: Message[], options: GenerateOptions = {}) =>
      this.#generate({ messages: JSON.stringify(messages) }, options);
    this.chat = Object.assign(chat, { completions: new Completions(chat, info) });
  }

  /** Goes on from text as it stands, or from tokens. */
  complete(prompt: string | ArrayLike<number>, options: GenerateOptions = {}): Generation {
    return this.#generate(typeof prompt === 'string' ? { text: prompt } : { ids: tokens(prompt) }, options);
  }

  /** The mean of the final states of all tokens, normed: `[d_model]`. */
  embed(input: string | ArrayLike<number>): Promise<Float32Array> {
    return this.connection.call('embed', [typeof input === 'string' ? input : tokens(input)]);
  }

  /** `special`: names of special tokens in the text mean these. */
  tokenize(text: string, { special = false } = {}): Promise<Uint32Array> {
    return this.connection.call('tokenize', [text, special]);
  }

  detokenize(ids: ArrayLike<number>): Promise<string> {
    return this.connection.call('detokenize', [tokens(ids)]);
  }

  /** A state that holds nothing yet. */
  async newState(): Promise<State> {
    return new WorkerState(this.connection, await this.connection.call('newState', []));
  }

  /** What `check` can be asked about. */
  matrices(): Promise<MatrixInfo[]> {
    return this.connection.call('matrices', []);
  }

  /** The kernels' self-test, or a matrix's product against the reference. */
  check(matrix?: string): Promise<Check[]> {
    return this.connection.call('check', [matrix]);
  }

  /** Frees everything; what has not been answered is rejected with `disposed`. */
  dispose(): void {
    this.connection.close();
  }

  #generate(prompt: Prompt, options: GenerateOptions): Generation {
    const { connection } = this;
    return new RunningGeneration(async (push, signal) => {
      const { onToken, onPrompt, state = this.state } = options;
      if (!(state instanceof WorkerState)) throw new SelkieError('argument', 'the state is not one of this package');
      return connection.call('generate', [prompt, settings(options), state.numberIn(connection)], {
        signal,
        onEvent(event) {
          if (event.kind === 'prompt') onPrompt?.(event.read, event.of);
          if (event.kind !== 'text') return;
          push(event.text);
          onToken?.(event.text);
        },
      });
    }, options.signal);
  }
}

/** `chat(messages, options)`, and `chat.completions.create(request)`. */
export interface Chat {
  (messages: Message[], options?: GenerateOptions): Generation;
  completions: Completions;
}

/** Token ids as the worker takes them. */
export function tokens(ids: ArrayLike<number>): Uint32Array {
  return Uint32Array.from(ids);
}

export function randomSeed(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
}

/** The options with what holds where they say nothing: the likeliest token, without penalties. */
function settings(options: GenerateOptions): SentGenerate {
  const { stop = [], logitBias = {}, maxTokens } = options;
  return {
    ...(maxTokens === undefined ? {} : { maxTokens }),
    temperature: options.temperature ?? 0,
    topK: options.topK ?? 0,
    topP: options.topP ?? 1,
    minP: options.minP ?? 0,
    repetitionPenalty: options.repetitionPenalty ?? 1,
    frequencyPenalty: options.frequencyPenalty ?? 0,
    presencePenalty: options.presencePenalty ?? 0,
    logitBias: Object.entries(logitBias).map(([id, bias]) => [Number(id), bias]),
    seed: options.seed ?? randomSeed(),
    stop: typeof stop === 'string' ? [stop] : stop,
    ignoreEos: options.ignoreEos ?? false,
  };
}
