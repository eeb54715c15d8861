import type { Message } from './engine';

/** What an answer took. */
export interface Figures {
  promptTokens: number;
  cachedTokens: number;
  newTokens: number;
  promptPerSecond: number;
  decodePerSecond: number;
}

export interface Turn {
  role: 'user' | 'assistant';
  content: string;
  figures?: Figures;
  /** Why an answer is not complete. */
  cut?: 'length' | 'context' | 'cancelled' | 'error';
}

export interface Conversation {
  id: string;
  title: string;
  /** Whether the title is the visitor's: then no question replaces it. */
  named: boolean;
  created: number;
  updated: number;
  turns: Turn[];
  /** The model that answered last, and what opens it again where the browser keeps it. */
  model?: { id: string; name: string; source: string | null };
  contextUsed?: number;
  contextSize?: number;
}

/** What the model's state was after a turn. */
export interface KeptState {
  /** The conversation's. */
  id: string;
  modelId: string;
  /** Turns that it has seen. */
  turns: number;
  bytes: Uint8Array;
}

export const UNTITLED = 'New conversation';

export function newConversation(): Conversation {
  const now = Date.now();
  return { id: crypto.randomUUID(), title: UNTITLED, named: false, created: now, updated: now, turns: [] };
}

/** The first words of the first question. */
export function titleOf(turns: Turn[]): string {
  const first =
    turns
      .find(turn => turn.role === 'user')
      ?.content.trim()
      .replace(/\s+/g, ' ') ?? '';
  if (first.length <= 48) return first || UNTITLED;
  return `${first.slice(0, 48).replace(/\s+\S*$/, '')}…`;
}

/** What the model is given. */
export function messagesOf(turns: Turn[], system: string): Message[] {
  // An answer that broke off before its first word says nothing.
  const messages: Message[] = turns
    .filter(({ content }) => content !== '')
    .map(({ role, content }) => ({ role, content }));
  if (system.trim()) messages.unshift({ role: 'system', content: system.trim() });
  return messages;
}

/** Something of that name from outside: an imported file, or a database that an older page wrote. */
export function asConversation(value: unknown): Conversation | null {
  if (typeof value !== 'object' || value === null) return null;
  const { id, title, named, created, updated, turns, model, contextUsed, contextSize } = value as Record<
    string,
    unknown
  >;
  if (typeof id !== 'string' || !id || !Array.isArray(turns)) return null;
  const conversation: Conversation = {
    id,
    title: typeof title === 'string' && title ? title : UNTITLED,
    named: named === true,
    created: typeof created === 'number' ? created : Date.now(),
    updated: typeof updated === 'number' ? updated : Date.now(),
    turns: turns.map(asTurn).filter(turn => turn !== null),
  };
  const {
    id: modelId,
    name,
    source,
  } = (typeof model === 'object' && model !== null ? model : {}) as Record<string, unknown>;
  if (typeof modelId === 'string' && typeof name === 'string') {
    conversation.model = { id: modelId, name, source: typeof source === 'string' ? source : null };
  }
  if (typeof contextUsed === 'number') conversation.contextUsed = contextUsed;
  if (typeof contextSize === 'number') conversation.contextSize = contextSize;
  return conversation;
}

function asTurn(value: unknown): Turn | null {
  if (typeof value !== 'object' || value === null) return null;
  const { role, content, figures, cut } = value as Record<string, unknown>;
  if ((role !== 'user' && role !== 'assistant') || typeof content !== 'string') return null;
  const turn: Turn = { role, content };
  if (cut === 'length' || cut === 'context' || cut === 'cancelled' || cut === 'error') turn.cut = cut;
  const numbers = Object.values(typeof figures === 'object' && figures !== null ? figures : { none: null });
  if (numbers.every(number => typeof number === 'number')) turn.figures = figures as Figures;
  // The tab was closed while it came.
  if (role === 'assistant' && !turn.figures && !turn.cut) turn.cut = 'cancelled';
  return turn;
}
