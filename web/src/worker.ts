// The worker: it takes calls, does them one after the other, and answers.

import { SelkieError, asSelkieError, toWire } from './errors';
import type { Call, FromWorker, ToWorker } from './protocol';
import { askForSubgroups } from './subgroups';
import { type Context, Host } from './worker/host';
import { Queue, Stop } from './worker/queue';

const scope = self as unknown as DedicatedWorkerGlobalScope;
const host = new Host();
const queue = new Queue();
/** Calls that have not been answered. */
const calls = new Map<number, Stop>();

function post(message: FromWorker, transfer: Transferable[] = []): void {
  scope.postMessage(message, transfer);
}

function lose(error: SelkieError): void {
  post({ lost: toWire(error) });
}

scope.onmessage = ({ data }: MessageEvent<ToWorker>) => {
  if ('cancel' in data) calls.get(data.cancel)?.stop();
  else void answer(data);
};

/** The module writes its own words to the console before it ends. */
function trapped({ message }: WebAssembly.RuntimeError): SelkieError {
  return new SelkieError('internal', `the engine broke off (${message}); the console of the browser says where`);
}

async function answer(call: Call): Promise<void> {
  const { call: id } = call;
  const stop = new Stop();
  if (call.stopped) stop.stop();
  calls.set(id, stop);
  try {
    const context: Context = { stop, tell: what => post({ event: id, what }) };
    const value = await queue.add(() => carryOut(call, context));
    post({ done: id, value }, buffersOf(value));
  } catch (error) {
    const failure = asSelkieError(error);
    // A trap leaves the module's memory as it was in the middle of something.
    if (error instanceof WebAssembly.RuntimeError) lose(trapped(error));
    else if (failure.code === 'device-lost') lose(failure);
    else post({ failed: id, error: toWire(failure) });
  } finally {
    calls.delete(id);
  }
}

async function carryOut({ method, args }: Call, context: Context): Promise<unknown> {
  // The protocol says which arguments belong to which method; here only the names are known.
  const serve = host[method] as (call: Context, ...args: unknown[]) => unknown;
  return serve.call(host, context, ...args);
}

/** What an answer need not copy: arrays that the wasm module has copied out of its memory for it. */
function buffersOf(value: unknown): Transferable[] {
  return ArrayBuffer.isView(value) && value.buffer instanceof ArrayBuffer ? [value.buffer] : [];
}

askForSubgroups(device => {
  void device.lost.then(({ message, reason }) => {
    // A device that was only looked at, or that the model does not run on.
    if (host.backend === 'cpu' || (host.backend === null && reason === 'destroyed')) return;
    lose(new SelkieError('device-lost', `the GPU's device is gone (${reason}): ${message || 'the browser does not say why'}`));
  });
});
