/** What people may know the GPU by. The wasm module sees the description alone, which most browsers leave empty. */
export async function adapterName(): Promise<string> {
  // Missing in browsers without WebGPU, whatever the types say.
  const gpu = navigator.gpu as GPU | undefined;
  const info = (await gpu?.requestAdapter())?.info;
  if (!info) return 'no GPU';
  const { description, vendor, architecture, device } = info;
  return description || [vendor, architecture, device].filter(Boolean).join(' ') || 'a GPU without a name';
}
