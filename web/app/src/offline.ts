// The service worker that keeps the page: see ../sw.js, and ../precache.ts for what it keeps.

/** Milliseconds that a first visit waits for it: what the package fetches afterwards is kept, too. */
const PATIENCE = 1500;

/** Resolves once the page is kept, or cannot be. */
export async function keepPage(): Promise<void> {
  if (!import.meta.env.PROD || !('serviceWorker' in navigator)) return;
  try {
    await navigator.serviceWorker.register('./sw.js', { scope: './' });
  } catch {
    // Private windows and plain `http:` have none: the page works, only not offline.
    return;
  }
  if (navigator.serviceWorker.controller) return;
  await new Promise<void>(resolve => {
    navigator.serviceWorker.addEventListener('controllerchange', () => resolve(), { once: true });
    setTimeout(resolve, PATIENCE);
  });
}
