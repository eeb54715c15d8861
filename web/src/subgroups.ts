// Asks for what wgpu cannot ask a browser for.
//
// wgpu's web backend knows no name for the WebGPU feature `subgroups`, so a device that it requests has none even where the
// adapter offers them, and it asks for no limit that it does not know. The wasm module's request passes through here: the
// features below are added where the adapter has them, and limits that the request does not name are the adapter's. Shaders
// are handed to the browser as they are, so nothing else stands in the way. When wgpu learns to ask, this file can go.

const features = ['subgroups', 'shader-f16'] as const;

/** Told of each device that is made. */
export type OnDevice = (device: GPUDevice) => void;

export function askForSubgroups(onDevice: OnDevice): void {
  // No WebGPU here; the CPU does the work.
  if (typeof GPUAdapter === 'undefined') return;
  const request = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (this: GPUAdapter, descriptor = {}): Promise<GPUDevice> {
    const device = await request.call(this, extended(this, descriptor));
    onDevice(device);
    return device;
  };
}

/** Whether devices come with subgroups, once `askForSubgroups` was called: the wasm module cannot see it. */
export async function offersSubgroups(): Promise<boolean> {
  // Missing in browsers without WebGPU, whatever the types say.
  const gpu = navigator.gpu as GPU | undefined;
  const adapter = await gpu?.requestAdapter();
  return adapter?.features.has('subgroups') ?? false;
}

function extended(adapter: GPUAdapter, descriptor: GPUDeviceDescriptor): GPUDeviceDescriptor {
  const wanted = new Set(descriptor.requiredFeatures);
  for (const feature of features) if (adapter.features.has(feature)) wanted.add(feature);
  const limits: Record<string, GPUSize64 | undefined> = { ...descriptor.requiredLimits };
  for (const [name, value] of Object.entries(limitsOf(adapter))) {
    // Alignments are better the smaller they are; the default does.
    if (!(name in limits) && name.startsWith('max')) limits[name] = value;
  }
  return { ...descriptor, requiredFeatures: [...wanted], requiredLimits: limits };
}

/** The limits are properties of the prototype, which `Object.entries` of the object does not see. */
function limitsOf({ limits }: GPUAdapter): Record<string, number> {
  const found: Record<string, number> = {};
  for (const name in limits) {
    const value: unknown = limits[name as keyof GPUSupportedLimits];
    if (typeof value === 'number') found[name] = value;
  }
  return found;
}
