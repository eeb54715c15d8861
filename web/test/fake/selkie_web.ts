// Stands for the wasm module where there is none: the loader's tests, and work on the page. It reads what it is given,
// and answers with text of its own making.

import { sha256 } from 'hash-wasm';
import { SelkieError } from '../../src/errors';
import { kindOf } from '../../src/sources/magic';
import type { ModelInfo } from '../../src/types';
import type { OnEvent, WasmFiles, WasmGenerate, WasmGenerated, WasmHooks, WasmModule, WasmOptions } from '../../src/wasm';
import { reply } from './reply';

const pause = (milliseconds = 0) => new Promise(resolve => setTimeout(resolve, milliseconds));

/** Tells tests what was read, and of what. */
const told = new BroadcastChannel('selkie-fake');

/** Bytes of one read. */
const STEP = 1 << 20;

class Session {
  held: number[] = [];
  size: number;

  constructor(size: number) {
    this.size = size;
  }

  length(): number {
    return this.held.length;
  }

  capacity(): number {
    return this.size;
  }

  tokens(): Uint32Array {
    return Uint32Array.from(this.held);
  }

  fork(): Session {
    const fork = new Session(this.size);
    fork.held = [...this.held];
    return fork;
  }

  free(): void {
    this.held = [];
  }
}

class Model {
  #info: ModelInfo;
  #text: string | undefined;
  #weights = Float32Array.from({ length: 64 }, (_, i) => Math.sin(i));

  private constructor(info: ModelInfo) {
    this.#info = info;
  }

  static async load(files: WasmFiles, options: string, hooks: WasmHooks): Promise<Model> {
    const total = files.weights.reduce((sum, { size }) => sum + size, 0);
    const { context = 4096, memory = Infinity, device } = JSON.parse(options) as WasmOptions;
    if (total > memory) throw new SelkieError('out-of-memory', `the model takes ${total} bytes, of ${memory}`);
    let done = 0;
    const all = new Uint8Array(total);
    for (const source of files.weights) {
      if (!kindOf(await source.read(0, Math.min(16, source.size)))) throw new SelkieError('file', `${source.name}: not a model`);
      for (let at = 0; at < source.size; at += STEP) {
        const bytes = await source.read(at, Math.min(at + STEP, source.size));
        if (hooks.stopped()) throw new SelkieError('aborted', 'cancelled');
        all.set(bytes, done);
        done += bytes.length;
        hooks.progress('load', done, total);
        told.postMessage({ read: done });
      }
    }
    for (let i = 1; i <= 20; i++) {
      await pause(10);
      if (hooks.stopped()) throw new SelkieError('aborted', 'cancelled');
      hooks.progress('compile', i, 20);
    }
    if (device === 'webgpu' && !await gpuDevice()) throw new SelkieError('no-gpu', 'no WebGPU here');
    const hybrid = kindOf(all.subarray(0, 16)) === 'mbjs';
    const info = describe(files.name, (await sha256(all)).slice(0, 32), device, total, context, hybrid);
    return new Model(Object.assign(info, { received: Model.#received(files) }));
  }

  /** What came beside the weights. */
  static #received(files: WasmFiles): Record<string, string> {
    const { name: _, weights, ...others } = files;
    const texts = Object.entries(others).map(([role, bytes]) => [role, new TextDecoder().decode(bytes)] as const);
    return { ...Object.fromEntries(texts), weights: weights.map(({ name }) => name).join(' ') };
  }

  static async create(_config: string, options: string, hooks: WasmHooks): Promise<Model> {
    const { context = 1024, device } = JSON.parse(options) as WasmOptions;
    hooks.progress('compile', 1, 1);
    return new Model(describe('hybrid', '0'.repeat(32), device, 4096, context, true));
  }

  info(): string {
    return JSON.stringify(this.#info);
  }

  tokenize(text: string, _special: boolean): Uint32Array {
    return Uint32Array.from(new TextEncoder().encode(text));
  }

  detokenize(ids: Uint32Array): string {
    return new TextDecoder().decode(Uint8Array.from(ids));
  }

  chatPrompt(messages: string): Uint32Array {
    const list = JSON.parse(messages) as { role: string; content: string }[];
    return this.tokenize(`${list.map(({ role, content }) => `<${role}>${content}\n`).join('')}<assistant>`, true);
  }

  async newSession(capacity: number): Promise<Session> {
    return new Session(capacity);
  }

  async generate(session: Session, prompt: Uint32Array, json: string, onEvent: OnEvent): Promise<string> {
    const options = JSON.parse(json) as WasmGenerate;
    let held = 0;
    while (held < session.held.length && session.held[held] === prompt[held]) held += 1;
    session.held.length = held;
    if (prompt.length > session.size) throw new SelkieError('context', `${prompt.length} tokens, of ${session.size}`);
    const started = performance.now();
    const promptTokens = prompt.length - held;
    const out: WasmGenerated = {
      text: '', ids: [], finish: 'length', promptTokens, promptSeconds: 0, decodedTokens: 0, decodeSeconds: 0,
    };
    for (let at = held; at < prompt.length && out.finish !== 'cancelled';) {
      at = Math.min(at + 32, prompt.length);
      await pause(2);
      if (!onEvent('prompt', at - held, promptTokens)) out.finish = 'cancelled';
    }
    session.held.push(...prompt.subarray(held));
    const decoding = performance.now();
    const pieces = reply(this.detokenize(prompt), options.seed).match(/\s*\S+/g) ?? [];
    for (const piece of pieces) {
      if (out.finish === 'cancelled' || out.ids.length >= options.maxTokens) break;
      await pause(15);
      out.text += piece;
      out.ids.push(out.ids.length);
      if (!onEvent('text', piece)) out.finish = 'cancelled';
      else if (out.ids.length === pieces.length) out.finish = 'stop';
    }
    session.held.push(...this.tokenize(out.text, false));
    out.promptSeconds = (decoding - started) / 1000;
    out.decodedTokens = out.ids.length;
    out.decodeSeconds = (performance.now() - decoding) / 1000;
    return JSON.stringify(out);
  }

  async embed(ids: Uint32Array): Promise<Float32Array> {
    return Float32Array.from({ length: this.#info.dModel }, (_, i) => Math.sin(i + ids.length) / 8);
  }

  async saveState(session: Session, text: string | undefined): Promise<Uint8Array> {
    return new TextEncoder().encode(JSON.stringify({ id: this.#info.id, held: session.held, text }));
  }

  async loadState(file: Uint8Array, capacity: number): Promise<Session> {
    const { id, held, text } = JSON.parse(new TextDecoder().decode(file)) as { id: string; held: number[]; text?: string };
    if (id !== this.#info.id) throw new SelkieError('file', 'a state of another model');
    const session = new Session(capacity);
    session.held = held;
    this.#text = text;
    return session;
  }

  takeText(): string | undefined {
    return this.#text;
  }

  async planes(session: Session): Promise<unknown[]> {
    return [0, 2].map(layer => ({
      layer, name: 'ssm', shape: [16, 64], values: Float32Array.from({ length: 1024 }, (_, i) => Math.sin(i * (layer + 1) + session.held.length)),
    }));
  }

  matrices(): string {
    return JSON.stringify([{ name: 'blk.0.attn_q.weight', shape: [64, 64], type: 'q8_0' }]);
  }

  async check(matrix: string | undefined): Promise<string> {
    const line = (name: string) => ({ name, error: 1e-6, tolerance: 1e-4, ok: true, milliseconds: 1.5, detail: 'not computed: this is no engine' });
    await pause(100);
    return JSON.stringify(matrix === undefined ? ['matvec q8_0', 'attention', 'selective scan'].map(line) : [line(`${matrix} f32`), line(`${matrix} f64`)]);
  }

  async forward(_ids: Uint32Array, batch: number, seqLen: number): Promise<Float32Array> {
    return new Float32Array(batch * seqLen * this.#info.vocabSize);
  }

  async hybridGenerate(ids: Uint32Array, n: number, _options: string): Promise<Uint32Array> {
    return Uint32Array.from([...ids, ...Array.from({ length: n }, (_, i) => i % this.#info.vocabSize)]);
  }

  async parameters(): Promise<unknown[]> {
    return [{ name: 'embedding', shape: [8, 8], values: this.#weights }];
  }

  async exportMbjs(_fp16: boolean, _trailer: boolean): Promise<Uint8Array> {
    const file = new Uint8Array(4 + this.#weights.byteLength);
    file.set(new TextEncoder().encode('SJBM'));
    file.set(new Uint8Array(this.#weights.buffer), 4);
    return file;
  }

  async importMbjs(file: Uint8Array): Promise<void> {
    if (kindOf(file.subarray(0, 16)) !== 'mbjs') throw new SelkieError('file', 'not an MBJS file');
    this.#weights = new Float32Array(file.slice(4).buffer);
  }

  free(): void {
    // Nothing lies outside of this object.
  }
}

/** A device that is asked for as wgpu does: without features that it does not know. */
async function gpuDevice(): Promise<GPUDevice | null> {
  const adapter = await navigator.gpu?.requestAdapter();
  return await adapter?.requestDevice({ requiredLimits: { maxBindGroups: 4 } }) ?? null;
}

function describe(name: string, id: string, device: string, bytes: number, context: number, hybrid: boolean): ModelInfo {
  return {
    name, id, architecture: hybrid ? 'hybrid' : 'llama', backend: device === 'webgpu' ? 'webgpu' : 'cpu', device: 'no engine', hybrid,
    fallback: device === 'webgpu' ? null : 'there is no engine here', bytes, context, modelContext: 8192, vocabSize: 256, dModel: 64, layers: 4,
    schedule: ['mamba2', 'attention', 'mamba2', 'attention'], hasChatTemplate: true, hasTokenizer: true, recurrent: true,
  };
}

export default async function init(): Promise<void> {
  // A real one is compiled here.
}

export async function deviceReport(measure: boolean): Promise<string> {
  await pause(measure ? 300 : 0);
  const device = await gpuDevice();
  if (device) {
    // As wgpu would get it: what it did not ask for is there all the same.
    const { limits, features } = device;
    const adapter = { name: 'a real one', software: true, features: [...features], limits: { maxBufferSize: limits.maxBufferSize }, readBandwidth: null };
    device.destroy();
    return JSON.stringify({ adapter });
  }
  return JSON.stringify({
    adapter: {
      name: 'no engine', software: true, features: ['shader-f16', 'subgroups'], limits: { maxBufferSize: 1 << 30 },
      readBandwidth: measure ? 1e10 : null, dispatchSeconds: measure ? 1e-5 : null,
    },
  });
}

export const WasmModel: WasmModule['WasmModel'] = Model as unknown as WasmModule['WasmModel'];
