// One answer at a time: from a question to the turns that it leaves.

import { messagesOf, type Conversation, type Turn } from './conversation';
import { announce } from './dom';
import type { Generation, GenerateOptions, Model, Result } from './engine';
import { isAbort } from './errors';
import { current, keep, keepDraft, list, pin } from './library';
import { keepSoon, takeUp } from './memory';
import { report } from './notices';
import { learn } from './pace';
import { isGone, phase } from './session';
import { sampling, settings } from './settings';
import { sample, sampleDuring } from './trace';
import { Value } from './value';

export interface Running {
  conversation: Conversation;
  turn: Turn;
  /** Positions that the conversation took before. */
  before: number;
  /** Tokens of the prompt that are read, and of how many. */
  prompt: { read: number; of: number } | null;
  /** Pieces so far, and how many come in a second. */
  pieces: number;
  perSecond: number;
  stop: AbortController;
}

/** Milliseconds between two times that an answer on its way is kept. */
const DRAFT = 2000;

/** The answer on its way; set anew with each piece. */
export const running = new Value<Running | null>(null);

export function stop(): void {
  running.get()?.stop.abort();
}

export async function ask(text: string): Promise<void> {
  const conversation = current.get();
  conversation.turns.push({ role: 'user', content: text });
  await answer(conversation);
}

/** Takes the conversation back to a question, which may have become another. */
export async function askAgain(at: number, text: string): Promise<void> {
  const conversation = current.get();
  conversation.turns.length = at;
  await ask(text);
}

/** Another answer in place of the one at `at`. */
export async function regenerate(at: number): Promise<void> {
  const conversation = current.get();
  conversation.turns.length = at;
  await answer(conversation);
}

async function answer(conversation: Conversation): Promise<void> {
  const now = phase.get();
  if (now.kind !== 'ready' || running.get()) return;
  const { model, wanted } = now;
  const turn: Turn = { role: 'assistant', content: '' };
  const before = conversation.contextUsed ?? 0;
  const run: Running = {
    conversation,
    turn,
    before,
    prompt: null,
    pieces: 0,
    perSecond: 0,
    stop: new AbortController(),
  };
  const asked = [...conversation.turns];
  conversation.turns.push(turn);
  conversation.model = {
    id: model.info.id,
    name: model.info.name,
    source: typeof wanted.source === 'string' ? wanted.source : null,
  };
  pin(conversation);
  running.set(run);
  current.set(conversation);
  announce('Answering');
  try {
    await keep(conversation);
    await takeUp(model, conversation);
    const options = { ...sampling(), signal: run.stop.signal, ...watching(run) };
    const result = await read(run, model, begin(model, asked, options));
    finish(run, result);
    learn(model.info, result);
  } catch (error) {
    turn.cut = isAbort(error) ? 'cancelled' : 'error';
    // Of a model that has ended, the page says so itself.
    if (!isAbort(error) && !(await isGone(model))) report('The answer broke off', error);
  }
  // A stop before the first word leaves the question alone.
  if (turn.content === '' && turn.cut === 'cancelled') conversation.turns.pop();
  running.set(null);
  pin(null);
  if (current.get().id === conversation.id) current.set(conversation);
  announceEnd(turn);
  // It may have been deleted meanwhile.
  if (!list.get().some(one => one.id === conversation.id)) return;
  await keep(conversation);
  if (turn.cut !== 'error') {
    keepSoon(model, conversation);
    void sample(model);
  }
}

/** A model without a chat template continues the text as it stands. */
function begin(model: Model, turns: Turn[], options: GenerateOptions): Generation {
  if (model.info.hasChatTemplate) return model.chat(messagesOf(turns, settings.get().system), options);
  const text = turns.map(({ role, content }, at) => (role === 'user' && at > 0 ? `\n\n${content}` : content));
  return model.complete(text.join(''), options);
}

function watching(run: Running): GenerateOptions {
  return {
    onPrompt(read, of) {
      run.prompt = { read, of };
      running.set(run);
    },
  };
}

async function read(run: Running, model: Model, generation: Generation): Promise<Result> {
  let began = 0;
  let drafted = performance.now();
  for await (const piece of generation) {
    const now = performance.now();
    if (run.pieces === 0) began = now;
    run.pieces += 1;
    if (run.pieces > 1) run.perSecond = (1000 * (run.pieces - 1)) / Math.max(1, now - began);
    run.turn.content += piece;
    running.set(run);
    if (now - drafted > DRAFT) {
      drafted = now;
      void keepDraft(run.conversation);
    }
    sampleDuring(model, run.pieces);
  }
  return generation;
}

function finish(run: Running, result: Result): void {
  const { turn, conversation } = run;
  turn.content = result.text;
  const full = result.finish === 'length' && result.contextUsed >= result.contextSize;
  if (result.finish !== 'stop') turn.cut = full ? 'context' : result.finish;
  turn.figures = {
    promptTokens: result.promptTokens,
    cachedTokens: result.cachedTokens,
    newTokens: result.newTokens,
    promptPerSecond: result.promptPerSecond,
    decodePerSecond: result.decodePerSecond,
  };
  conversation.contextUsed = result.contextUsed;
  conversation.contextSize = result.contextSize;
}

/** A short answer is read out; of a long one only that it is there. */
function announceEnd(turn: Turn): void {
  if (turn.cut === 'error') return;
  if (turn.cut === 'cancelled') announce('Stopped');
  else if (turn.content.length <= 280) announce(`Answer: ${turn.content}`);
  else announce(`The answer is complete: ${turn.content.trim().split(/\s+/).length} words.`);
}
