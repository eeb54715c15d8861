import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const fixtures = fileURLToPath(new URL('../../../fixtures/', import.meta.url));

export const fixture = path => `${fixtures}${path}`;

/** The largest difference of two arrays. */
export function largest(a, b) {
  if (a.length !== b.length) return Infinity;
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i])), 0);
}

/** Serves files of fixtures/ under /fixtures/; gives the address of the first. */
export function serveFixture(server, ...paths) {
  const [url] = paths.map(path => server.serve(`/fixtures/${path}`, readFileSync(fixture(path))));
  return url;
}

/** Code for a worker in which the browser has no WebGPU. */
export const WITHOUT_GPU = "Object.defineProperty(WorkerNavigator.prototype, 'gpu', { get: () => undefined });";

/** Code for a worker whose devices are destroyed at a word. */
export const DESTROYED = `{
  const { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    const device = await requestDevice.apply(this, args);
    new BroadcastChannel('destroy').onmessage = () => device.destroy();
    return device;
  };
}`;

/** Code for a worker that counts what a step asks of the GPU, and tells it at a word. */
export const COUNTED = `{
  const counts = {};
  const wrap = (prototype, name) => {
    const method = prototype[name];
    counts[name] = 0;
    prototype[name] = function (...args) {
      counts[name] += 1;
      return method.apply(this, args);
    };
  };
  wrap(GPUComputePassEncoder.prototype, 'dispatchWorkgroups');
  wrap(GPUDevice.prototype, 'createBuffer');
  wrap(GPUDevice.prototype, 'createComputePipeline');
  wrap(GPUDevice.prototype, 'createComputePipelineAsync');
  wrap(GPUDevice.prototype, 'createBindGroup');
  wrap(GPUQueue.prototype, 'submit');
  const channel = new BroadcastChannel('counts');
  channel.onmessage = ({ data }) => data === 'ask' && channel.postMessage({ ...counts });
}`;
