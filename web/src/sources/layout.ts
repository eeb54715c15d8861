// What lies where in the browser's files (OPFS): `selkie/NAME/model.json` says what a model consists of, and beside it are
// its files, each with `FILE.part.json`, which says how much of it is there.

export type Role = 'weights' | 'index' | 'config' | 'tokenizer' | 'tokenizerConfig' | 'chatTemplate';

export interface ManifestFile {
  role: Role;
  file: string;
  url: string;
  optional: boolean;
  /** The server does not have it, and need not. */
  absent?: boolean;
}

export interface Manifest {
  version: 1;
  name: string;
  url: string;
  /** Milliseconds since 1970. */
  used: number;
  files: ManifestFile[];
}

export interface Part {
  /** `null` where the server does not say. */
  size: number | null;
  have: number;
  etag: string | null;
  modified: string | null;
  /** Of the whole file; `null` while it is not complete. */
  sha256: string | null;
  /** The hash so far, so that going on does not begin with reading everything: hexadecimal. */
  hashed: string | null;
}

export const MANIFEST = 'model.json';

export function partName(file: string): string {
  return `${file}.part.json`;
}

/** Held shared by who uses a model's files, and exclusively by who deletes them. */
export function modelLock(name: string): string {
  return `selkie:model:${name}`;
}

/** The folder of all models; `null` where the browser offers none, as in some private windows. */
export async function modelsFolder(): Promise<FileSystemDirectoryHandle | null> {
  // Not there on pages without TLS.
  if (typeof navigator.storage?.getDirectory !== 'function' || !navigator.locks) return null;
  try {
    const root = await navigator.storage.getDirectory();
    return await root.getDirectoryHandle('selkie', { create: true });
  } catch {
    // Private windows say so in different ways; all mean that nothing can be kept.
    return null;
  }
}

export async function folderIn(parent: FileSystemDirectoryHandle, name: string): Promise<FileSystemDirectoryHandle | null> {
  return parent.getDirectoryHandle(name).catch(nullWhereMissing);
}

export async function fileIn(folder: FileSystemDirectoryHandle, name: string): Promise<FileSystemFileHandle | null> {
  return folder.getFileHandle(name).catch(nullWhereMissing);
}

/** The JSON of a file that this package wrote; `null` where there is none, or where writing it was cut short. */
export async function readJson<T>(folder: FileSystemDirectoryHandle, name: string): Promise<T | null> {
  const handle = await fileIn(folder, name);
  if (!handle) return null;
  const text = await (await handle.getFile()).text();
  try {
    return JSON.parse(text) as T;
  } catch {
    return null;
  }
}

function nullWhereMissing(error: unknown): null {
  if (error instanceof DOMException && error.name === 'NotFoundError') return null;
  throw error;
}
