// The queue: cards open and are answered without a page load, and the list keeps up. It all works without this, too.
(() => {
  "use strict";
  const { ask, post, showLive, showWaiting, meanings, typing } = window.desk;
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const rows = () => all(".cards a");
  const current = () => {
    const focused = document.activeElement?.closest?.(".cards li")?.querySelector("a");
    return focused ?? one(".cards a[aria-current]");
  };
  let busy = null; // what is being asked: a key that comes before the next card is seen must not answer it

  // The list takes over the rows that changed and leaves the others, with what is ticked in them.
  function takeRows(fresh) {
    const old = one("#waiting");
    const list = one(".cards", old);
    const next = one(".cards", fresh);
    const top = list?.scrollTop ?? 0;
    const seen = !list || inView(list);
    const kept = new Map(all(".cards > li", old).map((row) => [row.id, row]));
    for (const row of all(".cards > li", fresh)) {
      const same = kept.get(row.id);
      const box = same && one("input[type=checkbox]", same);
      if (same && same.dataset.made === row.outerHTML) row.replaceWith(same);
      else {
        row.dataset.made = row.outerHTML;
        if (box?.checked && one("input[type=checkbox]", row)) one("input[type=checkbox]", row).checked = true;
      }
    }
    const focus = document.activeElement?.closest?.(".cards li")?.id;
    old.replaceChildren(...fresh.childNodes);
    showWaiting(Number(one("#waits").textContent));
    if (next) next.scrollTop = top;
    if (focus && !document.activeElement.closest(".cards")) one(`#${CSS.escape(focus)} a`)?.focus({ preventScroll: true });
    mark(seen);
  }
  // Rows above the chosen one come and go: whoever saw it goes on seeing it, whoever scrolled away stays there.
  function inView(list) {
    const row = one("a[aria-current]", list)?.getBoundingClientRect();
    const shown = list.getBoundingClientRect();
    return !row || (row.top >= Math.max(0, shown.top - 1) && row.bottom <= Math.min(innerHeight, shown.bottom + 1));
  }
  function mark(show = true) {
    const open = one(".open").dataset.open;
    for (const link of rows()) {
      const chosen = link.closest("li").id === `row-${open}`;
      link.closest("li").classList.toggle("chosen", chosen);
      if (chosen) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
      if (chosen && show) link.scrollIntoView({ block: "nearest" });
    }
  }

  // A page of the queue takes the place of this one: its card, what is live, and where we are.
  function take({ answer, page }, { push = true, afresh = false } = {}) {
    const inbox = one("#waiting", page) && one(".inbox", page);
    if (!inbox) {
      const why = one("[role=alert]", page)?.textContent;
      if (answer.redirected || !why) return location.assign(answer.url);
      const said = document.createElement("p");
      said.setAttribute("role", "alert");
      said.textContent = why;
      one(".open").prepend(said);
      return;
    }
    const address = new URL(answer.url);
    address.searchParams.delete("done");
    const shown = one(".inbox");
    const old = one("#waiting");
    const next = one("#waiting", inbox);
    const same = next.dataset.from === old.dataset.from;
    const here = next.dataset.list === old.dataset.list && one(`#row-${CSS.escape(one(".open", inbox).dataset.open)}`);
    // A list that holds more than the page's own, or begins elsewhere and has the card, stays, and asks for itself.
    const stays = !afresh && (same ? rows().length > all(".cards a", inbox).length : here);
    one(".open").replaceWith(one(".open", inbox));
    shown.className = inbox.className;
    if (!stays) {
      Object.assign(old.dataset, next.dataset);
      takeRows(next);
    }
    document.title = page.title;
    showLive(page);
    if (push && answer.status < 400 && address.href !== location.href) history.pushState(null, "", address);
    mark();
    window.scrollTo(0, 0);
    one("#card")?.focus({ preventScroll: true });
    if (stays) refresh();
  }
  async function takeNext(asked, options) {
    busy = asked;
    try {
      take(await asked, options);
    } finally {
      busy = null;
    }
  }
  async function go(address, options) {
    if (!busy) await takeNext(ask(address), options);
  }
  async function give(form, button) {
    // An undo names what it undoes, whichever card comes next; it is pressed once.
    const undone = form.closest(".toast") && form.elements.at.value;
    while (busy && undone) await Promise.allSettled([busy]);
    if (undone && one(".toast [name=at]")?.value !== undone) return;
    if (!busy) await takeNext(post(form, button));
  }
  const plain = (event) => !(event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.button);
  document.addEventListener("click", (event) => {
    const link = event.target.closest(".cards a, #stale a, .back a, a[rel=next]");
    if (!link || !plain(event)) return;
    event.preventDefault();
    if (link.rel === "next") refresh(25);
    else go(link.href);
  });
  document.addEventListener("submit", (event) => {
    if (event.defaultPrevented || !event.target.closest(".open, .cards, .toast")) return;
    event.preventDefault();
    give(event.target, event.submitter);
  });
  window.addEventListener("popstate", () => go(location.href, { push: false }));

  // The list asks for itself; the open card follows, unless the person is in the middle of an answer.
  const answering = () =>
    busy || one("dialog[open], [data-signing]") || one(".answers details[open]") || one(".cards input:checked") || typing(document.activeElement);
  let refreshing = null; // the list that is being asked for
  let again = false; // something changed while the list was asked for
  async function refresh(further = 0) {
    if (refreshing) {
      again ||= !further;
      return;
    }
    again = false;
    refreshing = takeList(further);
    await refreshing;
    refreshing = null;
    if (again) refresh();
  }
  async function takeList(further) {
    const { open, shape } = one(".open").dataset;
    const from = one("#waiting").dataset.from;
    const asked = new URLSearchParams({ open, shape, count: rows().length + further });
    try {
      const { answer, page } = await ask(`${from}&${asked}`);
      const shown = one(".open").dataset;
      const moved = open !== shown.open || shape !== shown.shape || from !== one("#waiting").dataset.from;
      if (!answer.ok || busy || moved) return; // it was asked about what was there before
      takeRows(page.body);
      const outdated = one("#stale") || (one("#card.empty") && rows().length);
      if (outdated && !answering()) await go(location.href, { push: false });
    } catch {
      // The desk is away; the bell says so.
    }
  }
  // The next rows, once what is being asked for is there: the answer to that says nothing of them.
  let growing = null;
  function grow() {
    growing ??= growOnce().finally(() => { growing = null; });
    return growing;
  }
  async function growOnce() {
    while (refreshing) await refreshing;
    await refresh(25);
  }
  document.addEventListener("desk:changed", () => refresh());
  // The end of the list comes near as one scrolls in it: some rows before, the next ones are fetched.
  document.addEventListener("scroll", ({ target }) => {
    if (target !== one(".cards") || !target.scrollTop || !one("#waiting a[rel=next]")) return;
    if (target.scrollHeight - target.scrollTop - target.clientHeight < target.clientHeight / 2) refresh(25);
  }, true);

  // Keys.
  async function step(by) {
    let links = rows();
    let at = links.indexOf(current());
    if (at + by < 0 && at === 0 && new URLSearchParams(one("#waiting").dataset.from.split("?")[1]).get("after")) {
      // The list begins further down: the page of its first card has those before it.
      await go(links[0].href, { push: false, afresh: true });
      links = rows();
      at = links.indexOf(current());
    }
    if (by > 0 && at === links.length - 1 && one("#waiting a[rel=next]")) {
      await grow();
      links = rows();
      at = links.indexOf(current());
    }
    const to = links[at + by] ?? (current() ? null : links[0]);
    if (to) await go(to.href);
    links = rows();
    if (links.indexOf(current()) >= links.length - 5 && one("#waiting a[rel=next]")) await grow();
  }
  function answer(key) {
    const found = one(`.inbox [data-key="${key}"]`);
    if (!found || busy) return;
    if (found.tagName === "DETAILS") {
      found.open = true;
      one("input:not([type=hidden]), textarea, button", one("form", found)).focus();
    } else if (found.control) {
      found.control.focus();
    } else if (key === "a" && one("#card")?.dataset.risk === "high") {
      found.focus();
    } else {
      found.click();
    }
  }
  Object.assign(meanings, {
    j: () => step(1),
    k: () => step(-1),
    o: () => current()?.click(),
    x: () => one("input[type=checkbox]", current()?.closest("li"))?.click(),
  });
  for (const key of "abersw") meanings[key] = () => answer(key);
  one("#show-keys").hidden = false;
  for (const row of all(".cards > li")) row.dataset.made = row.outerHTML;
  mark();
})();
