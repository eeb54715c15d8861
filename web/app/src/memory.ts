// Which conversation the model's state belongs to, and how it comes back later.

import type { Conversation, KeptState } from './conversation';
import { get, put } from './database';
import type { Model } from './engine';
import { notify } from './notices';
import { closing, model as openModel } from './session';
import { settings } from './settings';

/** Larger states are read again from the text: a browser is no archive. */
const MOST_BYTES = 512e6;

/** Milliseconds of quiet after an answer before its state is kept. */
const QUIET = 1200;

let owner: { model: Model; conversation: string } | null = null;
let pending: { timer: number; run: () => Promise<void> } | null = null;

/**
 * Makes the model's state this conversation's: what was kept, else an empty one. The package reads what a state lacks,
 * so a state that is missing costs time and no answer.
 */
export async function takeUp(model: Model, conversation: Conversation): Promise<void> {
  const before = owner;
  if (before?.model === model && before.conversation === conversation.id) {
    postpone();
    return;
  }
  await flush();
  owner = { model, conversation: conversation.id };
  const kept = await find(conversation.id);
  if (kept && kept.modelId === model.info.id && conversation.turns.length > 0) {
    try {
      await model.state.load(kept.bytes);
      return;
    } catch {
      // Written by another version, or damaged: the text is still there.
    }
  }
  await model.state.clear();
}

/** After an answer: keeps the state once it is quiet. */
export function keepSoon(model: Model, conversation: Conversation): void {
  postpone();
  if (!settings.get().keepState) return;
  const run = () => save(model, conversation);
  pending = { run, timer: setTimeout(() => void flush(), QUIET) as unknown as number };
}

function postpone(): void {
  if (pending) clearTimeout(pending.timer);
  pending = null;
}

/** Keeps at once what is waiting: before another conversation takes the state, or the tab is hidden. */
export async function flush(): Promise<void> {
  const waiting = pending;
  postpone();
  await waiting?.run();
}

async function save(model: Model, conversation: Conversation): Promise<void> {
  // One that was lost has no state any more.
  if (openModel() !== model) return;
  const turns = conversation.turns.length;
  try {
    const bytes = await model.state.save({ conversation: conversation.id, turns });
    if (bytes.byteLength > MOST_BYTES) return;
    const record: KeptState = { id: conversation.id, modelId: model.info.id, turns, bytes };
    await put('states', record);
  } catch (error) {
    // The conversation itself is kept; only its reopening takes longer.
    const text = error instanceof Error ? error.message : String(error);
    notify({
      kind: 'warning',
      key: 'state-not-kept',
      title: 'The model’s state was not kept',
      text: `${text}. The conversation is; the model will read it again when it is reopened.`,
    });
  }
}

async function find(id: string): Promise<KeptState | undefined> {
  try {
    return await get<KeptState>('states', id);
  } catch {
    return undefined;
  }
}

/** Before a model is closed; and a hidden tab may be closed without another word. */
export function keepInTime(): void {
  closing.add(flush);
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'hidden') void flush();
  });
}
