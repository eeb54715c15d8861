// Models that are kept in the browser's files.

import { SelkieError } from '../errors';
import { writeJson } from './files';
import { MANIFEST, type Manifest, type ManifestFile, folderIn, modelsFolder, readJson } from './layout';
import type { Plan } from './plan';

/** A model's folder, and what is in it. */
export interface Kept {
  folder: FileSystemDirectoryHandle;
  manifest: Manifest;
}

/** The folder of what was loaded from `url` before. */
export async function findKept(url: string): Promise<Kept | null> {
  const models = await modelsFolder();
  if (!models) return null;
  for await (const handle of models.values()) {
    if (handle.kind !== 'directory') continue;
    const folder = handle as FileSystemDirectoryHandle;
    const manifest = await readJson<Manifest>(folder, MANIFEST);
    if (manifest?.url === url) return { folder, manifest };
  }
  return null;
}

export async function openKept(name: string): Promise<Kept> {
  const models = await modelsFolder();
  const folder = models && await folderIn(models, name);
  const manifest = folder && await readJson<Manifest>(folder, MANIFEST);
  if (!folder || !manifest) throw new SelkieError('not-found', `no model ${name} is stored`);
  return { folder, manifest };
}

/** Makes a folder for `plan`; `null` where the browser keeps nothing. */
export async function makeKept(plan: Plan, url: string): Promise<Kept | null> {
  const models = await modelsFolder();
  if (!models) return null;
  let name = safe(plan.name);
  for (let i = 2; await folderIn(models, name); i++) name = `${safe(plan.name)}-${i}`;
  const taken = new Set<string>([MANIFEST]);
  const files = plan.files.map(({ role, name: wanted, from, optional }): ManifestFile => {
    let file = safe(wanted);
    for (let i = 2; taken.has(file); i++) file = `${i}-${safe(wanted)}`;
    taken.add(file);
    return { role, file, url: String(from), optional };
  });
  const folder = await models.getDirectoryHandle(name, { create: true });
  const kept = { folder, manifest: { version: 1, name, url, used: Date.now(), files } satisfies Manifest };
  await saveManifest(kept);
  return kept;
}

export async function saveManifest({ folder, manifest }: Kept): Promise<void> {
  await writeJson(folder, MANIFEST, manifest);
}

/** Deletes a folder that holds nothing of use. */
export async function forget(kept: Kept): Promise<void> {
  const models = await modelsFolder();
  await models?.removeEntry(kept.folder.name, { recursive: true });
}

/** A name that every file system takes. */
function safe(name: string): string {
  return name.replace(/[^\w.+-]+/g, '_').replace(/^\.+/, '').slice(-100) || 'model';
}
