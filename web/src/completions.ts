import { SelkieError } from './errors';
import type {
  ChatCompletion, ChatCompletionChunk, ChatRequest, FinishReason, GenerateOptions, Generation, Message, ModelInfo, Result, Usage,
} from './types';

type ChatFunction = (messages: Message[], options: GenerateOptions) => Generation;

/** Chat in the shapes of OpenAI's interface. */
export class Completions {
  #chat: ChatFunction;
  #info: ModelInfo;

  /** @internal */
  constructor(chat: ChatFunction, info: ModelInfo) {
    this.#chat = chat;
    this.#info = info;
  }

  create(request: ChatRequest & { stream: true }): Promise<AsyncIterable<ChatCompletionChunk>>;
  create(request: ChatRequest & { stream?: false }): Promise<ChatCompletion>;
  create(request: ChatRequest): Promise<ChatCompletion | AsyncIterable<ChatCompletionChunk>>;
  async create(request: ChatRequest): Promise<ChatCompletion | AsyncIterable<ChatCompletionChunk>> {
    if ((request.n ?? 1) !== 1) throw new SelkieError('unsupported', `n is ${request.n}: only one answer at a time is given`);
    const text = this.#chat(request.messages, options(request));
    const head = {
      id: `chatcmpl-${Array.from(crypto.getRandomValues(new Uint8Array(12)), hex).join('')}`,
      created: Math.floor(Date.now() / 1000),
      model: request.model ?? this.#info.name,
    };
    if (request.stream) return chunks(text, head, request.stream_options?.include_usage ?? false);
    const result = await text;
    if (result.finish === 'cancelled') throw new SelkieError('aborted', 'cancelled');
    return {
      ...head,
      object: 'chat.completion',
      choices: [{
        index: 0, message: { role: 'assistant', content: result.text }, finish_reason: reason(result), logprobs: null,
      }],
      usage: usage(result),
    };
  }
}

/** The pieces as chunks: the role first, the reason why it ended last, then the usage where it was asked for. */
async function* chunks(
  text: Generation, head: { id: string; created: number; model: string }, withUsage: boolean,
): AsyncGenerator<ChatCompletionChunk, void, void> {
  const chunk = (delta: { role?: 'assistant'; content?: string }, finish: FinishReason): ChatCompletionChunk => ({
    ...head,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, finish_reason: finish, logprobs: null }],
    ...(withUsage ? { usage: null } : {}),
  });
  yield chunk({ role: 'assistant', content: '' }, null);
  for await (const content of text) yield chunk({ content }, null);
  const result = await text;
  // A stream that was cancelled just ends.
  if (result.finish === 'cancelled') return;
  yield chunk({}, reason(result));
  if (withUsage) yield { ...head, object: 'chat.completion.chunk', choices: [], usage: usage(result) };
}

function hex(byte: number): string {
  return byte.toString(16).padStart(2, '0');
}

function reason({ finish }: Result): FinishReason {
  return finish === 'cancelled' ? null : finish;
}

function usage({ promptTokens, cachedTokens, newTokens }: Result): Usage {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: newTokens,
    total_tokens: promptTokens + newTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}

/** What is `null` or missing is left to `chat`. */
function options(request: ChatRequest): GenerateOptions {
  const pairs = {
    temperature: request.temperature,
    topP: request.top_p,
    topK: request.top_k,
    minP: request.min_p,
    maxTokens: request.max_completion_tokens ?? request.max_tokens,
    stop: request.stop,
    seed: request.seed,
    repetitionPenalty: request.repetition_penalty,
    frequencyPenalty: request.frequency_penalty,
    presencePenalty: request.presence_penalty,
    logitBias: request.logit_bias,
    signal: request.signal,
  };
  const given = Object.entries(pairs).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(given) as GenerateOptions;
}
