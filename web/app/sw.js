// The page's service worker. The build fills in the version and the files (precache.ts).

const CACHE = 'selkie-' + 'VERSION';
const EARLY = ['EARLY'];
const LATE = ['LATE'];
const address = file => new URL(file, self.registration.scope).href;
const late = new Set(LATE.map(address));

self.addEventListener('install', event => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then(cache =>
        cache.addAll(
          EARLY.map(file => new Request(address(file), { cache: file.includes('assets/') ? 'default' : 'no-cache' })),
        ),
      ),
  );
});

self.addEventListener('activate', event => {
  event.waitUntil(
    (async () => {
      for (const name of await caches.keys()) {
        if (!name.startsWith('selkie-') || name === CACHE) continue;
        await carryOver(name);
        await caches.delete(name);
      }
      await self.clients.claim();
    })(),
  );
});

/** A wasm file that the new version has, too, is not fetched again. */
async function carryOver(name) {
  const [before, now] = await Promise.all([caches.open(name), caches.open(CACHE)]);
  for (const url of late) {
    const kept = await before.match(url);
    if (kept) await now.put(url, kept);
  }
}

self.addEventListener('fetch', event => {
  const { request } = event;
  const url = new URL(request.url);
  // Models are the package's to fetch and keep, in ranges.
  if (request.method !== 'GET' || url.origin !== self.location.origin || request.headers.has('range')) return;
  if (!url.href.startsWith(self.registration.scope)) return;
  url.search = '';
  url.hash = '';
  const page = request.mode === 'navigate' && url.href === self.registration.scope;
  event.respondWith(answer(request, page ? address('index.html') : url.href));
});

async function answer(request, key) {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(key);
  if (kept) return kept;
  const response = await fetch(request);
  if (response.ok && late.has(key)) await cache.put(key, response.clone());
  return response;
}
