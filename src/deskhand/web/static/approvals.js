// Keys, the countdown of a hold, and an open page that keeps up. Everything here can also be done without it.
(() => {
  "use strict";
  const one = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const dialog = one("#keys");

  // Keys. They can be switched off: to somebody who speaks to the machine every letter is a key.
  const switched = one("#keys-on");
  const keysOn = () => localStorage.getItem("deskhand-keys") !== "off";
  if (switched) {
    switched.checked = keysOn();
    switched.addEventListener("change", () => localStorage.setItem("deskhand-keys", switched.checked ? "on" : "off"));
    document.addEventListener("click", (event) => event.target.closest("#show-keys") && dialog.showModal());
  }
  const showButton = () => { const button = one("#show-keys"); if (button) button.hidden = false; };

  const rows = () => all(".cards a");
  const current = () => {
    const focused = document.activeElement?.closest?.(".cards li")?.querySelector("a");
    return focused ?? one(".cards a[aria-current]");
  };
  function step(by) {
    const links = rows();
    const to = links[links.indexOf(current()) + by] ?? (current() ? null : links[0]);
    if (to) to.click();
  }
  function pick() {
    const box = current()?.closest("li")?.querySelector("input[type=checkbox]");
    if (box) box.click();
  }
  function answer(key) {
    const found = one(`[data-key="${key}"]`);
    if (!found) return;
    if (found.tagName === "DETAILS") {
      found.open = true;
      found.querySelector("input:not([type=hidden]), textarea, button").focus();
    } else if (key === "a" && one("#card")?.dataset.risk === "high") {
      found.focus();
    } else {
      found.click();
    }
  }
  const meanings = {
    j: () => step(1),
    k: () => step(-1),
    o: () => current()?.click(),
    x: pick,
    "?": () => dialog.showModal(),
  };
  const typing = (element) => element.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");

  document.addEventListener("keydown", (event) => {
    if (!dialog || dialog.open || event.defaultPrevented || event.repeat || event.isComposing) return;
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (!keysOn() && event.key !== "?") return;
    if (event.key in meanings) {
      event.preventDefault();
      meanings[event.key]();
    } else if (/^[abersuw]$/.test(event.key)) {
      event.preventDefault();
      answer(event.key);
    }
  });

  // The countdown shows what is left; the desk alone decides when it is over.
  const ends = new WeakMap();
  setInterval(() => {
    for (const each of all(".countdown")) {
      if (!ends.has(each)) ends.set(each, performance.now() + 1000 * Number(each.dataset.seconds));
      const left = Math.max(0, Math.ceil((ends.get(each) - performance.now()) / 1000));
      const words = left ? `in ${left} second${left > 1 ? "s" : ""}` : "now";
      if (each.textContent !== words) each.textContent = words;
    }
  }, 200);

  // After a change the list asks for itself; the open card follows, unless the person is in the middle of an answer.
  const busy = () =>
    dialog?.open || one(".answers details[open]") || one(".cards input:checked") || typing(document.activeElement);
  function keepUp() {
    const outdated = one("#stale") || (one("#card.empty") && rows().length);
    if (outdated && !busy()) {
      htmx.ajax("GET", location.pathname + location.search, { target: ".inbox", select: ".inbox", swap: "outerHTML" });
    }
  }
  document.addEventListener("htmx:after:swap", () => { showButton(); keepUp(); });
  showButton();
})();
