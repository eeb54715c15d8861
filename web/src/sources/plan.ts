// From what was given to the files that belong to it.

import { SelkieError } from '../errors';
import type { SentFile, SentParts } from '../protocol';
import type { Role } from './layout';
import { ENOUGH, kindOf } from './magic';

export interface PlannedFile {
  role: Role;
  name: string;
  from: SentFile;
  optional: boolean;
}

export interface Plan {
  name: string;
  /** What it was asked for by, where all of it comes from servers: then it can be kept. */
  url: string | null;
  files: PlannedFile[];
}

/** What lies beside weights that hold no settings of their own. */
const companions: { role: Role; name: string }[] = [
  { role: 'config', name: 'config.json' },
  { role: 'tokenizer', name: 'tokenizer.json' },
  { role: 'tokenizerConfig', name: 'tokenizer_config.json' },
  { role: 'chatTemplate', name: 'chat_template.jinja' },
];
const INDEX = '.safetensors.index.json';
const SPLIT = /^(.*)-(\d{5})-of-(\d{5})(\.[^.]+)$/;

/** The files of the model at `url`; `fetchIndex` is asked for an index of shards. */
export async function planUrl(url: string, fetchIndex: (url: string) => Promise<Uint8Array | null>): Promise<Plan> {
  const name = fileName(url);
  const file = (role: Role, of: string, optional: boolean): PlannedFile => ({ role, name: of, from: beside(url, of), optional });
  const others = companions.map(({ role, name: of }) => file(role, of, true));
  if (name.endsWith(INDEX)) {
    const index = await fetchIndex(url);
    if (!index) throw new SelkieError('not-found', `${url}: there is no such file`);
    const weights = shards(name, index).map(shard => file('weights', shard, false));
    return { name: modelName(url), url, files: [...weights, file('index', name, false), ...others] };
  }
  const parts = siblings(name);
  const files = parts.map(part => file('weights', part, false));
  if (/\.(safetensors|mbjs|bin)$/i.test(name)) {
    const stem = SPLIT.exec(name)?.[1];
    if (stem !== undefined) files.push(file('index', `${stem}${INDEX}`, true));
    files.push(...others);
  }
  return { name: modelName(url), url, files };
}

/** Dropped files, sorted by what they are. */
export async function planFiles(blobs: Blob[]): Promise<Plan> {
  const files: PlannedFile[] = [];
  const unknown: PlannedFile[] = [];
  for (const blob of blobs) {
    const name = blob instanceof File && blob.name !== '' ? blob.name : 'model';
    const role = await roleOf(name, blob);
    (role ? files : unknown).push({ role: role ?? 'config', name, from: blob, optional: false });
  }
  const weights = files.filter(({ role }) => role === 'weights').sort((a, b) => (a.name < b.name ? -1 : 1));
  const [first] = weights;
  const names = blobs.map(blob => (blob instanceof File ? blob.name : 'a nameless one')).join(', ');
  if (!first) throw new SelkieError('file', `none of the files is a .gguf, .safetensors or .mbjs model: ${names}`);
  const missing = siblings(first.name).find(part => !weights.some(({ name }) => name === part));
  if (missing !== undefined) throw new SelkieError('file', `${missing} is missing: ${first.name} is one part of several`);
  const ofOne = SPLIT.exec(first.name)?.[1];
  const many = weights.length > 1 && weights.some(({ name }) => SPLIT.exec(name)?.[1] !== ofOne || ofOne === undefined);
  if (many && !files.some(({ role }) => role === 'index')) {
    throw new SelkieError('argument', `these are several models, not one: ${weights.map(({ name }) => name).join(', ')}`);
  }
  // A configuration goes by any name where only one file can be meant.
  const config = files.some(({ role }) => role === 'config') ? [] : unknown.filter(({ name }) => name.endsWith('.json'));
  const others = files.filter(({ role }) => role !== 'weights');
  return { name: stem(first.name), url: null, files: [...weights, ...others, ...(config.length === 1 ? config : [])] };
}

/** Files that were named one by one. */
export function planParts(parts: SentParts): Plan {
  const { name, weights, ...others } = parts;
  const planned = (role: Role, from: SentFile): PlannedFile => ({ role, name: nameOf(from), from, optional: false });
  const files = weights.map(from => planned('weights', from));
  for (const [role, from] of Object.entries(others) as [Role, SentFile | undefined][]) {
    if (from !== undefined) files.push(planned(role, from));
  }
  const [first] = weights;
  const url = typeof first === 'string' && files.every(({ from }) => typeof from === 'string') ? first : null;
  return { name: name ?? (typeof first === 'string' ? modelName(first) : stem(files[0]?.name ?? 'model')), url, files };
}

async function roleOf(name: string, blob: Blob): Promise<Role | null> {
  if (/\.(gguf|safetensors|mbjs|bin)$/i.test(name)) return 'weights';
  if (name.endsWith(INDEX)) return 'index';
  const companion = companions.find(companion => companion.name === name);
  if (companion) return companion.role;
  return kindOf(new Uint8Array(await blob.slice(0, ENOUGH).arrayBuffer())) ? 'weights' : null;
}

/** The files that an index spreads the tensors over. */
function shards(name: string, index: Uint8Array): string[] {
  let map: unknown;
  try {
    const json: unknown = JSON.parse(new TextDecoder().decode(index));
    map = typeof json === 'object' && json !== null && 'weight_map' in json ? json.weight_map : null;
  } catch (error) {
    throw new SelkieError('file', `${name} is no JSON: ${String(error)}`);
  }
  const files = typeof map === 'object' && map !== null ? Object.values(map) : [];
  // A name with a path could lead to another folder or server.
  if (files.length === 0 || !files.every(file => typeof file === 'string' && /^[^/\\:?#]+$/.test(file))) {
    throw new SelkieError('file', `${name} has no weight_map of file names`);
  }
  return [...new Set(files as string[])].sort();
}

/** All parts of a split file, itself among them. */
function siblings(name: string): string[] {
  const [, stem, , count, ending] = SPLIT.exec(name) ?? [];
  if (stem === undefined || count === undefined || ending === undefined) return [name];
  return Array.from({ length: Number(count) }, (_, i) => `${stem}-${String(i + 1).padStart(5, '0')}-of-${count}${ending}`);
}

/** `name` in the folder of `url`, asked for with the same query. */
function beside(url: string, name: string): string {
  const there = new URL(url);
  there.pathname = there.pathname.replace(/[^/]*$/, encodeURIComponent(name));
  return fileName(url) === name ? url : there.href;
}

function fileName(url: string): string {
  const last = new URL(url).pathname.split('/').at(-1) ?? '';
  try {
    return decodeURIComponent(last) || 'model';
  } catch {
    return last;
  }
}

function nameOf(from: SentFile): string {
  if (typeof from === 'string') return fileName(from);
  return from instanceof File && from.name !== '' ? from.name : 'model';
}

function stem(name: string): string {
  return name.replace(SPLIT, '$1$4').replace(/(\.safetensors\.index\.json|\.[^.]+)$/, '') || 'model';
}

/** What a person would call it: the file where it has a name of its own, else the folder. */
function modelName(url: string): string {
  const own = stem(fileName(url));
  if (!/^(model|pytorch_model|weights)$/.test(own)) return own;
  const nameless = ['', 'main', 'master', 'resolve', 'raw', 'blob'];
  return new URL(url).pathname.split('/').slice(0, -1).filter(part => !nameless.includes(part)).at(-1) ?? own;
}
