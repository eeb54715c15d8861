import { SelkieError, asSelkieError } from './errors';
import { MANIFEST, type Manifest, type Part, folderIn, modelLock, modelsFolder, partName, readJson } from './sources/layout';
import type { StoredModel } from './types';

/** What the browser keeps for this page's origin. */
export const store = {
  /** The models, the one used last first. */
  list: typed(async (): Promise<StoredModel[]> => {
    const models: StoredModel[] = [];
    const folder = await modelsFolder();
    if (!folder) return models;
    for await (const handle of folder.values()) {
      const model = handle.kind === 'directory' ? await describe(handle as FileSystemDirectoryHandle) : null;
      if (model) models.push(model);
    }
    return models.sort((a, b) => b.used - a.used);
  }),

  /** Deletes what is kept of a model, and what is left of one that cannot be read. */
  delete: typed(async (name: string): Promise<void> => {
    const folder = await modelsFolder();
    if (!folder || !await folderIn(folder, name)) throw new SelkieError('not-found', `no model ${name} is stored`);
    await navigator.locks.request(modelLock(name), { ifAvailable: true }, async lock => {
      if (!lock) throw new SelkieError('storage', `${name} is being loaded, here or in another tab`);
      await folder.removeEntry(name, { recursive: true });
    });
  }),

  /** Asks the browser not to delete the models when it needs room; gives whether it agreed. */
  persist: typed(async (): Promise<boolean> => await navigator.storage?.persist?.() ?? false),

  /** Bytes that this origin uses, and may. */
  usage: typed(async (): Promise<{ used: number; quota: number }> => {
    const { usage = 0, quota = 0 } = await navigator.storage?.estimate?.() ?? {};
    return { used: usage, quota };
  }),
};

/** The browser's own exceptions as errors of this package. */
function typed<Args extends unknown[], Value>(run: (...args: Args) => Promise<Value>): (...args: Args) => Promise<Value> {
  return async (...args) => {
    try {
      return await run(...args);
    } catch (error) {
      throw asSelkieError(error);
    }
  };
}

async function describe(folder: FileSystemDirectoryHandle): Promise<StoredModel | null> {
  const manifest = await readJson<Manifest>(folder, MANIFEST);
  if (!manifest) return null;
  const { name, url, used } = manifest;
  const parts = await Promise.all(manifest.files.map(async ({ role, file }) => {
    return { role, part: await readJson<Part>(folder, partName(file)) };
  }));
  const sum = (of: (part: Part) => number) => parts.reduce((total, { part }) => total + (part ? of(part) : 0), 0);
  const hashes = parts.filter(({ role }) => role === 'weights').map(({ part }) => part?.sha256 ?? null);
  return {
    name,
    url,
    bytes: sum(({ size, have }) => size ?? have),
    have: sum(({ have }) => have),
    sha256: hashes.length === 1 ? hashes[0] ?? null : null,
    used,
  };
}
