import { SelkieError, bytes } from '../errors';

/** Writes JSON so that a reader finds the old or the new one. */
export async function writeJson(folder: FileSystemDirectoryHandle, name: string, value: unknown): Promise<void> {
  await writeFile(folder, name, new TextEncoder().encode(JSON.stringify(value)));
}

export async function writeFile(folder: FileSystemDirectoryHandle, name: string, data: Uint8Array): Promise<void> {
  const handle = await folder.getFileHandle(name, { create: true });
  if ('createWritable' in handle) {
    const stream = await handle.createWritable();
    await stream.write(data as Uint8Array<ArrayBuffer>);
    await stream.close();
    return;
  }
  // Older Safari; cut short, it reads as damaged JSON, which counts as none.
  const access = await (handle as FileSystemFileHandle).createSyncAccessHandle();
  try {
    access.truncate(0);
    access.write(data as Uint8Array<ArrayBuffer>);
    access.flush();
  } finally {
    access.close();
  }
}

/** Refuses what the browser will not keep, before any of it is fetched. */
export async function checkRoom(name: string, needed: number): Promise<void> {
  const { quota, usage = 0 } = await navigator.storage.estimate();
  if (quota === undefined || needed <= quota - usage) return;
  const left = bytes(Math.max(quota - usage, 0));
  throw new SelkieError('storage', `${name} needs ${bytes(needed)} of the browser's storage, of which ${left} are left `
    + `(${bytes(usage)} of ${bytes(quota)} are used): delete stored models, or load it with keep: false`);
}

/** Holds a lock until the function that it gives is called. */
export function hold(name: string, request: LockOptions): Promise<(() => void) | null> {
  return new Promise((resolve, reject) => {
    navigator.locks.request(name, request, lock => {
      if (!lock) return resolve(null);
      return new Promise<void>(release => resolve(release));
    }).catch(reject);
  });
}
