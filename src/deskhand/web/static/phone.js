// Asks the browser for an address at which it can be told, and gives it to the desk.
(() => {
  "use strict";
  const form = document.querySelector("#subscribe");
  const complain = (text) => {
    const place = form.querySelector("[role=alert]") ?? form.appendChild(document.createElement("p"));
    place.setAttribute("role", "alert");
    place.textContent = text;
  };
  const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
  const same = (one, other) => one?.byteLength === other.byteLength && new Uint8Array(one).every((each, at) => each === other[at]);

  if (!("serviceWorker" in navigator && "PushManager" in window && "Notification" in window)) {
    complain("This browser cannot be told here. On an iPhone add the desk to the Home Screen first, and open it from there.");
    return;
  }
  form.querySelector(".needs-script").hidden = false;

  async function subscribe() {
    if ((await Notification.requestPermission()) !== "granted") throw new Error("The browser does not let the desk tell you anything.");
    const applicationServerKey = bytes(form.dataset.serverKey);
    const { pushManager } = await navigator.serviceWorker.ready;
    const before = await pushManager.getSubscription();
    if (before && same(before.options.applicationServerKey, applicationServerKey)) return before;
    await before?.unsubscribe();
    return pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
  }
  // Before a passkey signs what the form says.
  window.addEventListener("submit", async (event) => {
    if (event.target !== form || form.elements.subscription.value) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    try {
      form.elements.subscription.value = JSON.stringify(await subscribe());
      form.requestSubmit();
    } catch (error) {
      complain(error.message);
    }
  }, true);

  async function markOwn() {
    const { pushManager } = await navigator.serviceWorker.ready;
    const found = await pushManager.getSubscription();
    if (!found) return;
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(found.endpoint));
    const name = [...new Uint8Array(digest)].map((each) => each.toString(16).padStart(2, "0")).join("");
    const row = document.querySelector(`[data-name="${name}"]`);
    if (!row) return;
    row.querySelector(".own").hidden = false;
    form.querySelector(".needs-script").hidden = true;
  }
  markOwn();
})();
