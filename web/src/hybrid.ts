import type { HybridSampling } from './protocol';
import { Model, randomSeed, tokens } from './model';
import { ownBytes } from './state';
import type { Parameter } from './types';

/** A hybrid of the first prototype: small, made from its configuration, its weights there to be read and replaced. */
export class Hybrid extends Model {
  /** Logits of `batch` rows of `seqLen` tokens: `[batch, seqLen, vocabSize]`. */
  forward(ids: ArrayLike<number>, batch: number, seqLen: number): Promise<Float32Array> {
    return this.connection.call('forward', [tokens(ids), batch, seqLen]);
  }

  /** `ids` and `n` tokens that follow. */
  generate(ids: ArrayLike<number>, n: number, options: HybridSampling = {}): Promise<Uint32Array> {
    return this.connection.call('hybridGenerate', [tokens(ids), n, { ...options, seed: options.seed ?? randomSeed() }]);
  }

  parameters(): Promise<Parameter[]> {
    return this.connection.call('parameters', []);
  }

  /** An MBJS file. `fp16`: half the size; `trailer`: the names and shapes of the parameters at its end. */
  export({ fp16 = false, trailer = true } = {}): Promise<Uint8Array> {
    return this.connection.call('exportMbjs', [fp16, trailer]);
  }

  /** Takes the weights of an MBJS file that was written for the same configuration. */
  async import(file: Uint8Array | ArrayBuffer | Blob): Promise<void> {
    const bytes = await ownBytes(file);
    return this.connection.call('importMbjs', [bytes], { transfer: [bytes.buffer] });
  }
}
