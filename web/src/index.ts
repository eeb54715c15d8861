import { Connection, type CallOptions } from './connection';
import { Hybrid } from './hybrid';
import { Model } from './model';
import type { SentOptions } from './protocol';
import { sendable } from './source';
import { store } from './store';
import type { DeviceReport, LoadOptions, Source } from './types';

export * from './types';
export type { HybridSampling } from './protocol';
export type { Chat } from './model';
export type { Completions } from './completions';
export { SelkieError } from './errors';
export { Hybrid, Model };

/** Language models in this tab. Each model has a worker of its own, which `dispose` ends. */
export const Selkie = {
  /** A model from an address, from files or from what is stored; a `Hybrid` where it is one. */
  async load(source: Source, options: LoadOptions = {}): Promise<Model> {
    const sent = sendable(source);
    const connection = new Connection();
    const info = await connection.only('load', [sent, settings(options)], calling(options));
    return info.hybrid ? new Hybrid(connection, info) : new Model(connection, info);
  },

  /** A hybrid with fresh weights: the first prototype's configuration, its seed included. */
  async create(config: object | string, options: LoadOptions = {}): Promise<Hybrid> {
    const json = typeof config === 'string' ? config : JSON.stringify(config);
    const connection = new Connection();
    return new Hybrid(connection, await connection.only('create', [json, settings(options)], calling(options)));
  },

  /** What this device can do. `measure`: bandwidth and the cost of a dispatch, too, which takes about a second. */
  async device(measure = false): Promise<DeviceReport> {
    const connection = new Connection();
    try {
      return await connection.call('device', [measure]);
    } finally {
      connection.close();
    }
  },

  /** The models that the browser keeps. */
  store,
};

function settings({ device = 'auto', context, memory, exact, keep = true }: LoadOptions): SentOptions {
  return {
    device,
    keep,
    ...(context === undefined ? {} : { context }),
    ...(memory === undefined ? {} : { memory }),
    ...(exact === undefined ? {} : { exact }),
  };
}

function calling({ signal, onProgress }: LoadOptions): CallOptions {
  return {
    signal,
    onEvent(event) {
      if (event.kind === 'progress') onProgress?.(event.progress);
    },
  };
}
