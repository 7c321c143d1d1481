// What every page has: counts that keep up, the one undo, keys, and a palette. Everything can also be done without it.
(() => {
  "use strict";
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const live = one("#live");

  // Asking the desk. Whoever is signed out is led to the sign-in page.
  async function ask(address, options = {}) {
    const answer = await fetch(address, { ...options, headers: { "HX-Request": "true" } });
    if (answer.status === 401) location.assign("/enter");
    return { answer, page: new DOMParser().parseFromString(await answer.text(), "text/html") };
  }
  const post = (form, button) =>
    ask(button?.getAttribute("formaction") ?? form.action, {
      method: "POST",
      body: new URLSearchParams(new FormData(form, button)),
    });

  // What is live: counts in the title and the navigation, what does not run, the last answer.
  let told = null; // what the last undo said, for some seconds
  let shown = 0; // how often it was shown
  function showLive(page) {
    shown += 1;
    const typed = one("input[type=password]", live)?.value;
    const signed = one(".toast:has([data-signing])", live);
    live.replaceChildren(...(one("#live", page) ?? page.body).childNodes);
    if (signed) one(".toasts", live)?.replaceChildren(signed);
    if (told) one(".toasts", live)?.prepend(told);
    // An open card that rests has its own undo.
    const toast = one(".toast[data-card]", live);
    if (toast) toast.hidden = !!one(`#card[data-state=held][data-id="${toast.dataset.card}"] [data-undo]`);
    if (typed && one("input[type=password]", live)) one("input[type=password]", live).value = typed;
    const counted = one("#counted", live)?.dataset ?? {};
    showCount(one("#count-decide"), Number(counted.deciding ?? 0));
    showCount(one("#count-agents"), Number(counted.messages ?? 0));
    showWaiting(Number(counted.waiting ?? 0));
  }
  function showCount(place, many) {
    place.hidden = !many;
    place.firstChild.textContent = many;
  }
  // One number, wherever it stands: in the navigation, in the title and above the queue.
  function showWaiting(many) {
    showCount(one("#count"), many);
    if (one("#waits")) one("#waits").textContent = many;
    document.title = (many ? `(${many}) ` : "") + document.title.replace(/^\(\d+\) /, "");
  }
  // What was asked for before an answer of the person says what was true before it: then it is asked for again.
  async function askForLive() {
    const before = shown;
    const { answer, page } = await ask("/live");
    if (shown !== before) return askForLive();
    if (answer.ok) showLive(page);
  }
  let keeping = null;
  let behind = false; // something changed while it was asked for
  async function keepUp() {
    behind = true;
    keeping ??= catchUp();
    await keeping;
  }
  async function catchUp() {
    try {
      while (behind) {
        behind = false;
        await askForLive();
        document.dispatchEvent(new Event("desk:changed"));
      }
    } catch {
      // The desk is away; the bell says so.
    } finally {
      keeping = null;
    }
  }

  // One tab listens to the bell for all of them: a browser opens few connections to one place.
  const relay = new BroadcastChannel("deskhand-bell");
  function hear(word) {
    const stopped = one("#stopped");
    stopped.hidden = word !== "stopped";
    stopped.role = stopped.hidden ? null : "alert";
    if (word === "changed") keepUp();
  }
  relay.onmessage = (message) => hear(message.data);
  function tell(word) {
    relay.postMessage(word);
    hear(word);
  }
  navigator.locks.request("deskhand-bell", () => new Promise(() => {
    const bell = new EventSource(live.dataset.events);
    let away = false;
    bell.addEventListener("changed", () => tell("changed"));
    bell.addEventListener("error", () => { away = true; tell("stopped"); });
    bell.addEventListener("open", () => { if (away) tell("changed"); away = false; });
  }));

  // The undo of the last answer, on whichever page.
  document.addEventListener("submit", async (event) => {
    if (event.defaultPrevented || !event.target.closest(".toast") || one("#waiting")) return;
    event.preventDefault();
    const { answer, page } = await post(event.target, event.submitter);
    // A mail that is to be decided again opens where mails are decided.
    if (answer.ok && new URL(answer.url).pathname === location.pathname) return location.assign(answer.url);
    const said = answer.ok ? "Undone. It waits again." : one("[role=alert]", page)?.textContent ?? "Not done.";
    await keepUp();
    const toast = document.createElement("p");
    toast.className = "toast";
    toast.textContent = said;
    told?.remove();
    told = toast;
    one(".toasts", live)?.prepend(toast);
    setTimeout(() => {
      toast.remove();
      if (told === toast) told = null;
    }, 5000);
  });

  // Seconds that are left; the desk alone decides when they are over.
  const ends = new WeakMap();
  setInterval(() => {
    for (const each of all(".countdown")) {
      if (!ends.has(each)) ends.set(each, performance.now() + 1000 * Number(each.dataset.seconds));
      const left = Math.max(0, Math.ceil((ends.get(each) - performance.now()) / 1000));
      const undo = each.closest(".toast");
      const words = undo ? `${left} s` : left ? `in ${left} second${left > 1 ? "s" : ""}` : "now";
      if (each.textContent !== words) each.textContent = words;
      if (undo && !left) undo.remove();
    }
  }, 200);

  // Keys. They can be switched off: to somebody who speaks to the machine every letter is a key.
  const help = one("#keys");
  const palette = one("#palette");
  const switched = one("#keys-on");
  const keysOn = () => localStorage.getItem("deskhand-keys") !== "off";
  switched.checked = keysOn();
  switched.addEventListener("change", () => localStorage.setItem("deskhand-keys", switched.checked ? "on" : "off"));
  const typing = (element) => element.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
  // What one is typing is sent; where its button is not the main one of an edited card, one has to look first.
  function send(form) {
    const button = one("button:not([type=button])", form);
    if (form.classList.contains("edit") && !button.classList.contains("main")) button.focus();
    else form.requestSubmit(button);
  }
  // What was done last, whatever it was; where another page shows its undo, that page and nothing that was done before.
  function undoLast() {
    const [newest] = all("[data-undo]").filter((each) => each.checkVisibility()).sort((a, b) => b.dataset.undo - a.dataset.undo);
    const { changed = 0, where } = one("#counted", live)?.dataset ?? {};
    if (newest && Number(changed) > Number(newest.dataset.undo)) location.assign(where);
    else newest?.click();
  }
  const meanings = {
    "?": () => help.showModal(),
    "/": () => {
      const field = one("main input[type=search]");
      if (field) field.focus();
      else openPalette();
    },
    u: () => undoLast(),
    c: () => one("#palette-more [data-key=c]").click(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.repeat || event.isComposing || one("dialog[open]")) return;
    if ((event.ctrlKey || event.metaKey) && event.key === "k") {
      event.preventDefault();
      openPalette();
    }
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && event.target.tagName === "TEXTAREA") {
      event.preventDefault();
      send(event.target.form);
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (!keysOn() && event.key !== "?") return;
    if (event.key in meanings) {
      event.preventDefault();
      meanings[event.key]();
    }
  });

  // Mails to decide: keys go through the list and press the buttons of the one that is open.
  if (one(".pick, .inbox") && !one("#waiting")) {
    const goBy = (steps) => {
      const rows = all(".pick a");
      rows[rows.findIndex((row) => row.hasAttribute("aria-current")) + steps]?.click();
    };
    meanings.j = () => goBy(1);
    meanings.k = () => goBy(-1);
    for (const each of all(".answers [data-key]")) {
      meanings[each.dataset.key] = () => {
        if (each.tagName !== "DETAILS") return each.click();
        each.open = true;
        one("textarea, input:not([type=hidden]), button", each).focus();
      };
    }
    // Mails that came or were decided elsewhere; a card that is open, and what is typed there, stays.
    document.addEventListener("desk:changed", async () => {
      if (one(".counts strong").textContent === one("#counted").dataset.deciding) return;
      if (one("#card.empty")) return location.reload();
      if (one(".list details[open], .list :focus")) return;
      const { answer, page } = await ask(location.href);
      if (!answer.ok || !one(".list", page)) return;
      one(".list").replaceWith(one(".list", page));
      one("#show-keys").hidden = false;
    });
    one("#show-keys").hidden = false;
    one(".pick [aria-current]")?.scrollIntoView({ block: "nearest" });
  }
  // Decided cards: the focus goes from one to the next; Enter follows it, as any link.
  const decided = all("#decided .lead");
  if (decided.length) {
    const focusBy = (steps) => {
      const at = decided.indexOf(document.activeElement) + steps;
      decided[Math.max(0, Math.min(at, decided.length - 1))].focus();
    };
    meanings.j = () => focusBy(1);
    meanings.k = () => focusBy(-1);
  }
  document.addEventListener("click", (event) => {
    if (event.target.closest("#show-keys")) help.showModal();
  });

  // The palette: every page, every button that has a key, and a search of what was typed.
  const text = one("#palette-text");
  const offers = one("#palette-list");
  function found() {
    const typed = text.value.trim();
    const words = typed.toLowerCase().split(/\s+/);
    const pages = all(".top nav a, #palette-more a:not([data-key])").map((link) => [`Go to ${link.firstChild.textContent.trim()}`, () => link.click()]);
    const doing = all("[data-key]").map((each) => {
      const name = one("summary", each) ?? each;
      return [name.firstChild.textContent.trim(), () => (each.tagName === "DETAILS" ? (each.open = true) : each.click())];
    });
    const fitting = [...doing, ...pages, ["Show the keys", meanings["?"]]].filter(([name]) =>
      words.every((word) => name.toLowerCase().includes(word)));
    const places = typed ? [["the queue", "/"], ["mail", "/mail"], ["notes", "/notes"]] : [];
    const searches = places.map(([name, path]) =>
      [`Search ${name} for “${typed}”`, () => location.assign(`${path}?q=${encodeURIComponent(typed)}`)]);
    return [...fitting, ...searches];
  }
  let chosen = 0;
  function drawOffers() {
    const offered = found();
    chosen = Math.max(0, Math.min(chosen, offered.length - 1));
    offers.replaceChildren(...offered.map(([name, act], place) => {
      const item = document.createElement("li");
      item.id = `offer-${place}`;
      item.role = "option";
      item.ariaSelected = String(place === chosen);
      item.textContent = name;
      item.addEventListener("click", () => { palette.close(); act(); });
      return item;
    }));
    text.setAttribute("aria-activedescendant", offered.length ? `offer-${chosen}` : "");
    one("[aria-selected=true]", offers)?.scrollIntoView({ block: "nearest" });
  }
  function openPalette() {
    text.value = "";
    chosen = 0;
    palette.showModal();
    drawOffers();
  }
  text.addEventListener("input", () => { chosen = 0; drawOffers(); });
  text.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) {
      event.preventDefault();
      chosen += by;
      drawOffers();
    } else if (event.key === "Enter") {
      event.preventDefault();
      one("[aria-selected=true]", offers)?.click();
    }
  });

  // The desk as an app: a page for when it is away, and notifications.
  navigator.serviceWorker?.register("/worker.js");

  window.desk = { ask, post, showLive, showWaiting, meanings, typing };
})();
