// The desk as an app: a page for when it cannot be reached, and the notification. Nothing that the desk shows is kept.
"use strict";
const CACHE = {{ ("deskhand-" ~ version)|tojson }};
const SHELL = {{ shell|tojson }};
const OFFLINE = {{ offline|tojson }};

self.addEventListener("install", (event) => {
  const files = SHELL.map((path) => new Request(path, { cache: "reload", credentials: "omit" }));
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(files)).then(() => self.skipWaiting()));
});
self.addEventListener("activate", (event) => event.waitUntil(replaceOld()));
async function replaceOld() {
  const old = (await caches.keys()).filter((name) => name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.clients.claim();
}

// Everything comes from the desk. What is kept here is shown only when the desk, or the proxy before it, does not answer.
// A form goes its way without us: so its origin stays what the browser says it is.
self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { pathname } = new URL(request.url);
  if (request.method !== "GET") return;
  if (request.mode === "navigate") event.respondWith(askDesk(request, OFFLINE));
  else if (SHELL.includes(pathname)) event.respondWith(askDesk(request, pathname));
});
async function askDesk(request, kept) {
  try {
    const answer = await fetch(request);
    if (![502, 504].includes(answer.status)) return answer;
  } catch {
    // No network, or no desk.
  }
  return (await caches.match(kept)) ?? Response.error();
}

// A notification says how much and never decides; the desk knows where it leads.
self.addEventListener("push", (event) => event.waitUntil(show(event.data)));
function show(data) {
  const { waiting, down } = read(data);
  const things = waiting === 1 ? "1 thing waits" : `${waiting} things wait`;
  const parts = down === 1 ? "1 part does not run" : `${down} parts do not run`;
  const words = [...(waiting ? [things] : []), ...(down ? [parts] : [])];
  const options = { body: "Open your desk.", tag: "waiting", renotify: true, icon: "/static/icon-192.png" };
  return self.registration.showNotification(words.join(", ") || "Deskhand", options);
}
function read(data) {
  const count = (number) => (Number.isInteger(number) && number > 0 ? number : 0);
  try {
    const told = data.json();
    return { waiting: count(told.waiting), down: count(told.down) };
  } catch {
    return { waiting: 0, down: 0 };
  }
}
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  // Always a window of its own: in an open one the person may be in the middle of a text.
  event.waitUntil(self.clients.openWindow("/notified"));
});
