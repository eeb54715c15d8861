import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import { looseInDevelopment, precache } from './precache';

// The page: `vite build app`, `vite preview app`. The package has a configuration of its own.
export default defineConfig({
  root: fileURLToPath(new URL('.', import.meta.url)),
  // Relative addresses: the built folder works under any path.
  base: './',
  cacheDir: fileURLToPath(new URL('../node_modules/.vite-app', import.meta.url)),
  build: {
    outDir: fileURLToPath(new URL('../dist-app', import.meta.url)),
    emptyOutDir: true,
    target: 'es2022',
    cssTarget: 'chrome123',
    modulePreload: { polyfill: false },
    // An inlined file would be a `data:` address, which the page's policy refuses for scripts.
    assetsInlineLimit: 0,
  },
  worker: { format: 'es' },
  plugins: [looseInDevelopment(), precache()],
});
