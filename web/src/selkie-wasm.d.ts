// The output of wasm-bindgen; vite.config.ts says where it lies.

declare module 'selkie-wasm/base' {
  type Module = import('./wasm').WasmModule;
  const init: Module['default'];
  export default init;
  export const deviceReport: Module['deviceReport'];
  export const WasmModel: Module['WasmModel'];
}

declare module 'selkie-wasm/relaxed' {
  export { default, deviceReport, WasmModel } from 'selkie-wasm/base';
}
