import { sha256 } from 'hash-wasm';
import { SelkieError } from '../errors';
import type { ByteSource } from '../wasm';
import { Download } from './download';
import { checkRoom, writeFile, writeJson } from './files';
import { Beyond, type Opened, fetchSmall, openAt, sizeOf } from './http';
import type { Kept } from './keep';
import { type ManifestFile, type Part, fileIn, partName, readJson } from './layout';
import { Later } from './later';
import type { Meter } from './meter';
import type { PlannedFile } from './plan';
import { FileSink } from './sink';
import { StoredFile } from './stored-file';
import { withTries } from './tries';
import { Turn } from './waiting';

/** Files that are fetched at once: browsers allow six connections to a server, and the page needs some, too. */
const AT_ONCE = 3;

/** Files in the browser's storage, and those on their way there. */
export class KeptFiles {
  #kept: Kept;
  #meter: Meter;
  #signal: AbortSignal;
  #end = new AbortController();
  #running: Promise<unknown>[] = [];
  #later: Later[] = [];

  constructor(kept: Kept, meter: Meter, signal: AbortSignal) {
    this.#kept = kept;
    this.#meter = meter;
    this.#signal = this.#end.signal;
    if (signal.aborted) this.#end.abort();
    signal.addEventListener('abort', () => this.#end.abort(), { once: true });
  }

  async weights(file: PlannedFile, index: number): Promise<ByteSource> {
    const complete = await this.#complete(file.name);
    if (complete) {
      this.#meter.there(file.name, complete.size);
      return complete;
    }
    if (index < AT_ONCE) return this.#fetch(file);
    const size = await withTries(this.#signal, () => sizeOf(String(file.from), this.#signal));
    if (size === null) return this.#fetch(file);
    this.#meter.expect(file.name, size);
    const later = new Later(file.name, size, () => this.#fetch(file));
    this.#later.push(later);
    return later;
  }

  async small({ name, from, optional }: PlannedFile): Promise<Uint8Array | null> {
    const entry = this.#entry(name);
    if (entry.absent) return null;
    const there = await this.#complete(name);
    if (there) return there.read(0, there.size);
    const bytes = await fetchSmall(String(from), this.#signal);
    if (bytes) {
      await writeFile(this.#kept.folder, name, bytes);
      const { length } = bytes;
      const hash = await sha256(bytes);
      const part: Part = { size: length, have: length, etag: null, modified: null, sha256: hash, hashed: null };
      await writeJson(this.#kept.folder, partName(name), part);
    } else if (optional) {
      entry.absent = true;
    } else {
      throw new SelkieError('not-found', `${String(from)}: there is no such file`);
    }
    return bytes;
  }

  /** `ok`: what still comes belongs to a model that was loaded. Otherwise what has come is put down. */
  async close(ok: boolean): Promise<void> {
    if (!ok) this.#end.abort();
    await Promise.all(this.#running);
  }

  /** How much of the weights is there. */
  async extent(): Promise<'nothing' | 'something' | 'all'> {
    const weights = this.#kept.manifest.files.filter(({ role }) => role === 'weights');
    const parts = await Promise.all(weights.map(({ file }) => readJson<Part>(this.#kept.folder, partName(file))));
    if (parts.every(part => part !== null && part.sha256 !== null)) return 'all';
    return parts.some(part => part !== null && part.have > 0) ? 'something' : 'nothing';
  }

  #entry(name: string): ManifestFile {
    const entry = this.#kept.manifest.files.find(({ file }) => file === name);
    if (!entry) throw new SelkieError('internal', `${name} is not in the model's list of files`);
    return entry;
  }

  /** The file, where all of it is there. */
  async #complete(name: string): Promise<StoredFile | null> {
    const { folder } = this.#kept;
    const part = await readJson<Part>(folder, partName(name));
    const handle = part && part.sha256 !== null ? await fileIn(folder, name) : null;
    if (!handle || !part || part.size === null) return null;
    // The browser or the visitor may have cleared what the note speaks of.
    return (await handle.getFile()).size === part.size ? new StoredFile(handle, part.size) : null;
  }

  async #fetch({ name, from }: PlannedFile): Promise<ByteSource> {
    const { folder } = this.#kept;
    const [url, meter, signal] = [String(from), this.#meter, this.#signal];
    const turn = await Turn.take(`selkie:file:${folder.name}/${name}`, name, meter, signal);
    try {
      // Another tab may have fetched it meanwhile.
      const complete = await this.#complete(name);
      if (complete) {
        turn.end();
        meter.there(name, complete.size);
        return complete;
      }
      const part = await readJson<Part>(folder, partName(name));
      const sink = await FileSink.open(folder, name, part?.have ?? 0);
      try {
        const opened = await openBehind(sink, url, signal);
        if (opened.total !== null) await checkRoom(name, opened.total - sink.have);
        const download = await Download.start(sink, opened, { url, name, part: sink.have > 0 ? part : null, meter, signal });
        turn.tell(name, () => ({ have: sink.have, size: download.size }));
        const over = () => {
          turn.end();
          this.#next();
        };
        this.#running.push(download.done.then(over, over));
        return download;
      } catch (error) {
        sink.close();
        throw error;
      }
    } catch (error) {
      turn.end();
      throw error;
    }
  }

  /** A file has come: on to the next. */
  #next(): void {
    if (this.#signal.aborted) return;
    const later = this.#later.find(({ started }) => !started);
    // What fails is told to who reads it.
    later?.start().catch(() => undefined);
  }
}

/** Asks for what `sink` does not have yet; where that lies behind the end of the file, for all of it. */
async function openBehind(sink: FileSink, url: string, signal: AbortSignal): Promise<Opened> {
  try {
    return await withTries(signal, () => openAt(url, Download.resumeAt(sink.have), null, signal));
  } catch (error) {
    if (!(error instanceof Beyond) || sink.have === 0) throw error;
    sink.clear();
    return withTries(signal, () => openAt(url, 0, null, signal));
  }
}
