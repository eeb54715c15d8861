// Conversations as one file, with the model's states: the bytes `SELKIEC1`, the length of a JSON text (u32, little
// endian), that text, and then the states, one after another; the text says where each begins.

import { asConversation, type Conversation, type KeptState } from './conversation';
import { download } from './copy';
import { all, get, put } from './database';
import { has, keep, list, openLibrary } from './library';
import { flush } from './memory';

const MAGIC = 'SELKIEC1';

/** Of text; what is longer is no file of ours. */
const MOST_TEXT = 256e6;

interface StatePlace {
  modelId: string;
  turns: number;
  offset: number;
  length: number;
}

interface Head {
  conversations: (Conversation & { state?: StatePlace })[];
}

export async function exportOne(conversation: Conversation): Promise<void> {
  await flush();
  const state = await get<KeptState>('states', conversation.id);
  download(`${fileName(conversation.title)}.selkie`, pack([conversation], state ? [state] : []));
}

export async function exportAll(): Promise<void> {
  await flush();
  const states = await all<KeptState>('states');
  download(`conversations-${new Date().toISOString().slice(0, 10)}.selkie`, pack(list.get(), states));
}

function fileName(title: string): string {
  return (
    title
      .replace(/[^\p{L}\p{N}]+/gu, '-')
      .replace(/^-+|-+$/g, '')
      .slice(0, 60) || 'conversation'
  );
}

export function pack(conversations: Conversation[], states: KeptState[]): Blob {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let offset = 0;
  const head: Head = { conversations: [] };
  for (const conversation of conversations) {
    const state = states.find(({ id }) => id === conversation.id);
    if (!state) {
      head.conversations.push(conversation);
      continue;
    }
    const { modelId, turns, bytes } = state;
    head.conversations.push({ ...conversation, state: { modelId, turns, offset, length: bytes.byteLength } });
    parts.push(bytes as Uint8Array<ArrayBuffer>);
    offset += bytes.byteLength;
  }
  const text = new TextEncoder().encode(JSON.stringify(head));
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, text.byteLength, true);
  return new Blob([MAGIC, length, text, ...parts], { type: 'application/octet-stream' });
}

/** Adds what a file holds; gives how many conversations. Those that are there already stay beside as copies. */
export async function importFile(file: Blob): Promise<number> {
  const begin = new Uint8Array(await file.slice(0, 12).arrayBuffer());
  const isOurs = begin.byteLength === 12 && new TextDecoder().decode(begin.subarray(0, 8)) === MAGIC;
  const length = isOurs ? new DataView(begin.buffer).getUint32(8, true) : 0;
  if (!isOurs || length > MOST_TEXT || 12 + length > file.size)
    throw new Error('This is no file of conversations, or it is cut short.');
  const head = JSON.parse(await file.slice(12, 12 + length).text()) as Partial<Head>;
  if (!Array.isArray(head.conversations)) throw new Error('The file holds no list of conversations.');
  let added = 0;
  for (const raw of head.conversations) {
    const conversation = asConversation(raw);
    if (!conversation) continue;
    if (await has(conversation.id)) conversation.id = crypto.randomUUID();
    const { updated } = conversation;
    await keep(conversation);
    // Keeping dates it anew; imported ones keep their place in the list.
    conversation.updated = updated;
    await put('conversations', conversation);
    await addState(file, 12 + length, conversation.id, raw.state);
    added += 1;
  }
  await openLibrary();
  return added;
}

async function addState(file: Blob, start: number, id: string, place: StatePlace | undefined): Promise<void> {
  if (!place || ![place.offset, place.length, place.turns].every(Number.isSafeInteger)) return;
  const from = start + place.offset;
  if (place.offset < 0 || place.length <= 0 || from + place.length > file.size) return;
  const bytes = new Uint8Array(await file.slice(from, from + place.length).arrayBuffer());
  const record: KeptState = { id, modelId: String(place.modelId), turns: place.turns, bytes };
  await put('states', record);
}
