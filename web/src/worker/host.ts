import { SelkieError, asSelkieError } from '../errors';
import type { CallEvent, HybridSampling, Methods, Prompt, SentGenerate, SentOptions, SentSource } from '../protocol';
import { Meter } from '../sources/meter';
import { openFiles } from '../sources/open';
import type { Check, DeviceReport, MatrixInfo, ModelInfo, Parameter, Plane, Result } from '../types';
import { offersSubgroups } from '../subgroups';
import type { WasmGenerated, WasmModel, WasmModule, WasmOptions } from '../wasm';
import { adapterName } from './adapter';
import { type Simd, simd, start } from './module';
import type { Stop } from './queue';
import { States } from './states';

/** What a method gets to know of its call. */
export interface Context {
  stop: Stop;
  tell(event: CallEvent): void;
}

/** What comes of a text that was cancelled before its turn. */
const nothing: WasmGenerated = {
  text: '', ids: [], finish: 'cancelled', promptTokens: 0, promptSeconds: 0, decodedTokens: 0, decodeSeconds: 0,
};

/** Every method of the protocol, with its call. */
type Served = { [M in keyof Methods]: Serve<Parameters<Methods[M]>, ReturnType<Methods[M]>> };
type Serve<Args extends unknown[], Value> = (call: Context, ...args: Args) => Value | Promise<Value>;

/** The model of this worker. */
export class Host implements Served {
  #module: Promise<WasmModule> | null = null;
  #loaded: { model: WasmModel; info: ModelInfo; states: States } | null = null;

  /** What the model runs on; `null` where there is none yet. */
  get backend(): ModelInfo['backend'] | null {
    return this.#loaded?.info.backend ?? null;
  }

  async load(call: Context, source: SentSource, { keep, ...options }: SentOptions): Promise<ModelInfo> {
    const { signal } = call.stop;
    const meter = new Meter(progress => call.tell({ kind: 'progress', progress }));
    // The module and the first bytes come at the same time.
    const started = this.#start();
    started.catch(() => undefined);
    const opened = await openFiles(source, keep, meter, signal);
    try {
      const { WasmModel } = await started;
      const settings = JSON.stringify({ ...options, subgroups: await offersSubgroups() });
      const model = await WasmModel.load(opened.files, settings, hooks(call, meter, opened.files.name));
      const info = await this.#keep(model, options);
      await opened.close(null);
      meter.ready(opened.files.name);
      return info;
    } catch (error) {
      const failure = asSelkieError(error);
      meter.end();
      await opened.close(failure);
      throw failure;
    }
  }

  async create(call: Context, config: string, { keep: _, ...options }: SentOptions): Promise<ModelInfo> {
    const meter = new Meter(progress => call.tell({ kind: 'progress', progress }));
    const { WasmModel } = await this.#start();
    const settings = JSON.stringify({ ...options, subgroups: await offersSubgroups() });
    const model = await WasmModel.create(config, settings, hooks(call, meter, 'hybrid'));
    const info = await this.#keep(model, options);
    meter.ready(info.name);
    return info;
  }

  async device(_: Context, measure: boolean): Promise<DeviceReport> {
    const module = await this.#start();
    const report = JSON.parse(await module.deviceReport(measure, await offersSubgroups())) as Pick<DeviceReport, 'adapter'>;
    if (report.adapter?.name === '') report.adapter.name = await adapterName();
    const kind: Simd = simd();
    return { ...report, cpu: { simd: kind }, userAgent: navigator.userAgent };
  }

  async generate(call: Context, prompt: Prompt, { maxTokens, ...options }: SentGenerate, state: number): Promise<Result> {
    const { model, states } = this.#model();
    const session = await states.get(state);
    const ids = promptIds(model, prompt);
    const settings = { ...options, maxTokens: maxTokens ?? Math.max(0, session.capacity() - ids.length) };
    const held = session.length();
    const generate = () => model.generate(session, ids, JSON.stringify(settings), (kind, value, of = 0) => {
      if (kind === 'text') call.tell({ kind, text: String(value) });
      else call.tell({ kind, read: Number(value), of });
      return !call.stop.stopped;
    });
    const result = call.stop.stopped ? nothing : JSON.parse(await generate()) as WasmGenerated;
    const rate = (count: number, seconds: number) => (seconds > 0 ? count / seconds : 0);
    return {
      text: result.text,
      ids: Uint32Array.from(result.ids),
      finish: result.finish,
      promptTokens: ids.length,
      // Of a prompt that was cut short, what was not read was not held either.
      cachedTokens: Math.min(held, ids.length - result.promptTokens),
      newTokens: result.ids.length,
      promptSeconds: result.promptSeconds,
      decodeSeconds: result.decodeSeconds,
      promptPerSecond: rate(result.promptTokens, result.promptSeconds),
      decodePerSecond: rate(result.decodedTokens, result.decodeSeconds),
      contextUsed: session.length(),
      contextSize: session.capacity(),
    };
  }

  tokenize(_: Context, text: string, special: boolean): Uint32Array {
    return this.#model().model.tokenize(text, special);
  }

  detokenize(_: Context, ids: Uint32Array): string {
    return this.#model().model.detokenize(ids);
  }

  async embed(_: Context, input: string | Uint32Array): Promise<Float32Array> {
    const { model } = this.#model();
    return model.embed(typeof input === 'string' ? model.tokenize(input, false) : input);
  }

  matrices(): MatrixInfo[] {
    return JSON.parse(this.#model().model.matrices()) as MatrixInfo[];
  }

  async check(_: Context, matrix: string | undefined): Promise<Check[]> {
    return JSON.parse(await this.#model().model.check(matrix)) as Check[];
  }

  newState(): number {
    return this.#model().states.add();
  }

  forkState(_: Context, state: number): Promise<number> {
    return this.#model().states.fork(state);
  }

  async stateLength(_: Context, state: number): Promise<number> {
    return (await this.#model().states.get(state)).length();
  }

  clearState(_: Context, state: number): void {
    this.#model().states.clear(state);
  }

  async saveState(_: Context, state: number, text: string | undefined): Promise<Uint8Array> {
    const { model, states } = this.#model();
    return model.saveState(await states.get(state), text);
  }

  async loadState(_: Context, state: number, file: Uint8Array): Promise<string | undefined> {
    const { model, states } = this.#model();
    await states.load(state, file);
    return model.takeText();
  }

  async planes(_: Context, state: number): Promise<Plane[]> {
    const { model, states } = this.#model();
    return await model.planes(await states.get(state)) as Plane[];
  }

  freeState(_: Context, state: number): void {
    this.#model().states.free(state);
  }

  forward(_: Context, ids: Uint32Array, batch: number, seqLen: number): Promise<Float32Array> {
    return this.#model().model.forward(ids, batch, seqLen);
  }

  hybridGenerate(_: Context, ids: Uint32Array, n: number, options: HybridSampling): Promise<Uint32Array> {
    return this.#model().model.hybridGenerate(ids, n, JSON.stringify(options));
  }

  async parameters(): Promise<Parameter[]> {
    return await this.#model().model.parameters() as Parameter[];
  }

  exportMbjs(_: Context, fp16: boolean, trailer: boolean): Promise<Uint8Array> {
    return this.#model().model.exportMbjs(fp16, trailer);
  }

  importMbjs(_: Context, file: Uint8Array): Promise<void> {
    return this.#model().model.importMbjs(file);
  }

  #start(): Promise<WasmModule> {
    return this.#module ??= start();
  }

  async #keep(model: WasmModel, { context }: WasmOptions): Promise<ModelInfo> {
    const info = JSON.parse(model.info()) as ModelInfo;
    // The module's own words say that this is WebGPU, and little else.
    if (info.backend === 'webgpu') info.device = await adapterName();
    this.#loaded = { model, info, states: new States(model, context ?? info.context) };
    return info;
  }

  #model(): { model: WasmModel; info: ModelInfo; states: States } {
    if (!this.#loaded) throw new SelkieError('internal', 'no model is loaded');
    return this.#loaded;
  }
}

function hooks({ stop }: Context, meter: Meter, name: string) {
  return {
    progress: (stage: 'load' | 'compile', done: number, total: number) => meter.step(stage, done, total, name),
    stopped: () => stop.stopped,
  };
}

function promptIds(model: WasmModel, prompt: Prompt): Uint32Array {
  if ('ids' in prompt) return prompt.ids;
  // Text that a person typed is only text; the template's own special tokens count.
  return 'messages' in prompt ? model.chatPrompt(prompt.messages) : model.tokenize(prompt.text, false);
}
