// IndexedDB, as promises. Conversations are one record each; the states of models, which may be large, are kept apart.

const NAME = 'selkie-page';
const VERSION = 1;

export type Table = 'conversations' | 'states';

let opened: Promise<IDBDatabase> | null = null;

function database(): Promise<IDBDatabase> {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore('conversations', { keyPath: 'id' });
      request.result.createObjectStore('states', { keyPath: 'id' });
    };
    request.onsuccess = () => {
      // Another tab with a newer page may change the tables.
      request.result.onversionchange = () => {
        request.result.close();
        opened = null;
      };
      resolve(request.result);
    };
    request.onerror = () => {
      opened = null;
      reject(request.error ?? new Error('the browser keeps no data here'));
    };
  });
  return opened;
}

async function run<T>(
  table: Table,
  mode: IDBTransactionMode,
  ask: (store: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  const transaction = (await database()).transaction(table, mode);
  const request = ask(transaction.objectStore(table));
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = transaction.onabort = () =>
      reject(transaction.error ?? request.error ?? new Error('the browser did not keep it'));
  });
}

export function all<T>(table: Table): Promise<T[]> {
  return run(table, 'readonly', store => store.getAll() as IDBRequest<T[]>);
}

export function get<T>(table: Table, id: string): Promise<T | undefined> {
  return run(table, 'readonly', store => store.get(id) as IDBRequest<T | undefined>);
}

export async function put(table: Table, record: { id: string }): Promise<void> {
  await run(table, 'readwrite', store => store.put(record));
}

export async function remove(table: Table, id: string): Promise<void> {
  await run(table, 'readwrite', store => store.delete(id));
}
