// The conversations that this browser keeps.

import { asConversation, newConversation, titleOf, type Conversation } from './conversation';
import { all, get, put, remove } from './database';
import { report } from './notices';
import { Value } from './value';

/** Newest first. */
export const list = new Value<Conversation[]>([]);

/** The one that is shown; a new one is in the list only once something was asked. */
export const current = new Value<Conversation>(newConversation());

/** The one that is being answered: what other tabs wrote meanwhile does not replace it. */
let pinned: Conversation | null = null;

export function pin(conversation: Conversation | null): void {
  pinned = conversation;
}

/** Other tabs of this page show the same list. */
const others = new BroadcastChannel('selkie-library');

export async function openLibrary(): Promise<void> {
  others.onmessage = () => void refresh();
  await refresh();
}

async function refresh(): Promise<void> {
  try {
    const found = (await all<unknown>('conversations')).map(asConversation).filter(one => one !== null);
    const now = current.get();
    const sorted = found.map(one => (one.id === pinned?.id ? pinned : one)).sort((a, b) => b.updated - a.updated);
    list.set(sorted);
    const fresh = sorted.find(({ id }) => id === now.id);
    if (fresh && fresh.updated > now.updated) current.set(fresh);
  } catch (error) {
    report('Conversations cannot be kept in this browser: they last until the tab closes.', error);
  }
}

export function start(): void {
  current.set(newConversation());
}

export function show(id: string): void {
  const found = list.get().find(one => one.id === id);
  if (found && found.id !== current.get().id) current.set(found);
}

/** Keeps a conversation as it is now. */
export async function keep(conversation: Conversation): Promise<void> {
  conversation.updated = Date.now();
  if (!conversation.named) conversation.title = titleOf(conversation.turns);
  list.set([conversation, ...list.get().filter(one => one.id !== conversation.id)]);
  await store(conversation);
}

/** Keeps an answer that is still coming, so that a tab that is closed loses little of it. */
export async function keepDraft(conversation: Conversation): Promise<void> {
  if (list.get().some(({ id }) => id === conversation.id)) await store(conversation, false);
}

export async function rename(id: string, title: string): Promise<void> {
  const found = list.get().find(one => one.id === id);
  if (!found || !title.trim()) return;
  for (const one of [found, current.get()]) {
    if (one.id === id) Object.assign(one, { title: title.trim(), named: true });
  }
  list.set([...list.get()]);
  await store(found);
}

export async function forget(id: string): Promise<void> {
  list.set(list.get().filter(one => one.id !== id));
  if (current.get().id === id) start();
  await remove('conversations', id);
  await remove('states', id);
  others.postMessage('changed');
}

export async function has(id: string): Promise<boolean> {
  return (await get('conversations', id)) !== undefined;
}

async function store(conversation: Conversation, tell = true): Promise<void> {
  try {
    await put('conversations', conversation);
    if (tell) others.postMessage('changed');
  } catch (error) {
    report('This conversation could not be kept.', error);
  }
}
