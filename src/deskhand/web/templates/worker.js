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
  const { waiting, down, ended } = read(data);
  if (ended) return tell("This device is told nothing more");
  const things = waiting === 1 ? "1 thing waits" : `${waiting} things wait`;
  const parts = down === 1 ? "1 part does not run" : `${down} parts do not run`;
  const words = [...(waiting ? [things] : []), ...(down ? [parts] : [])];
  return tell(words.join(", ") || "Deskhand");
}
function tell(title) {
  const options = { body: "Open your desk.", tag: "waiting", renotify: true, icon: "/static/icon-192.png" };
  return self.registration.showNotification(title, options);
}
function read(data) {
  const count = (number) => (Number.isInteger(number) && number > 0 ? number : 0);
  try {
    const told = data.json();
    return { waiting: count(told.waiting), down: count(told.down), ended: count(told.ended) };
  } catch {
    return { waiting: 0, down: 0, ended: 0 };
  }
}

// The push service gave the browser another address, or took the one that it had. The desk takes a new one from whoever
// knows the old one; a browser that does not say which it was says so to the person.
self.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(renew(event)));
async function renew({ oldSubscription: before, newSubscription: given }) {
  try {
    const { applicationServerKey } = before.options;
    const after = given ?? await self.registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
    const body = new URLSearchParams({ before: JSON.stringify(before), subscription: JSON.stringify(after) });
    if ((await fetch("/phone/renew", { method: "POST", body })).ok) return;
  } catch {
    // Told below.
  }
  await tell("This device is told nothing more");
}
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  // Always a window of its own: in an open one the person may be in the middle of a text.
  event.waitUntil(self.clients.openWindow("/notified"));
});
