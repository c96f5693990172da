// Keeps the page on this device: once opened, it opens without a network. A new export is a new
// VERSION, which takes the place of the old one when the page is opened the next time.

const SCOPE = `rivals ${registration.scope} `; // other pages of this server keep their own
const NAME = SCOPE + VERSION;

async function keep() {
  const requests = FILES.map((file) => new Request(file, { cache: "no-cache" }));
  await (await caches.open(NAME)).addAll(requests);
  await skipWaiting();
}

async function tidy() {
  const old = (await caches.keys()).filter((name) => name.startsWith(SCOPE) && name !== NAME);
  await Promise.all(old.map((name) => caches.delete(name)));
  await clients.claim();
}

async function answer(request) {
  const isPage = new URL(request.url).pathname.endsWith("/index.html");
  const kept = await (await caches.open(NAME)).match(isPage ? "./" : request, { ignoreSearch: true });
  return kept || fetch(request);
}

addEventListener("install", (event) => event.waitUntil(keep()));
addEventListener("activate", (event) => event.waitUntil(tidy()));
addEventListener("fetch", (event) => {
  const { method, url } = event.request;
  if (method === "GET" && url.startsWith(registration.scope)) event.respondWith(answer(event.request));
});
