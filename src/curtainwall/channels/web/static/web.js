// What a page does by itself: it listens, puts pieces in their places, and lets the inbox be driven by keys.
// Nothing here makes markup of text: pieces come drawn and escaped from the server, everything else is set as text.
"use strict";
(() => {
  const body = document.body;
  const csrf = () => document.querySelector('meta[name="csrf"]').content;
  const id = (name) => document.getElementById(name);

  // Times come in the server's zone, for whoever has no script; here they are told in the reader's.

  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const two = (number) => String(number).padStart(2, "0");
  const dayOf = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;

  function tellTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!time.textContent || Number.isNaN(at.getTime())) continue;
      const now = new Date();
      // Under the name of a day, or on this one, the day goes without saying.
      const day = dayOf(at) === (time.dataset.day || dayOf(now)) ? "" : `${two(at.getDate())} ${MONTHS[at.getMonth()]} `;
      const year = day && at.getFullYear() !== now.getFullYear() ? `${at.getFullYear()} ` : "";
      const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
      const seconds = `:${two(at.getSeconds())}`;
      time.textContent = `${day}${year}${clock}${time.dataset.seconds ? seconds : ""}`;
      time.title = `${dayOf(at)} ${clock}${seconds} ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
    }
  }

  // Pieces

  function complete(root) {
    tellTimes(root);
    for (const field of root.querySelectorAll('input[name="csrf"]')) field.value = csrf();
    if (window.htmx) window.htmx.process(root);
  }

  function put(html) {
    const held = document.createElement("template");
    held.innerHTML = html;
    steadily(() => {
      for (const piece of [...held.content.children]) place(piece);
      settleEmptiness();
    });
  }

  function place(piece) {
    const old = id(piece.id);
    if (old) {
      // Whoever types into it keeps what they typed; it comes again with the next change.
      const typing = document.activeElement?.matches("input, select, textarea") && old.contains(document.activeElement);
      if (typing && piece.id.startsWith("rail-")) return;
      const isSettled = piece.dataset.settled === "yes";
      // An open ask stays as it was asked, with whatever somebody has typed into it.
      const asked = old.querySelector(".answers");
      if (old.classList.contains("card") && !isSettled) return;
      if (asked && asked.action === piece.querySelector(".answers")?.action) return;
      const leave = asked ? leaving(old, asked) : null;
      // What was folded stays folded, unless it became a question or stopped being one.
      if (!isSettled && !piece.classList.contains("asked") && !old.classList.contains("asked")) {
        const opened = [...old.querySelectorAll("details")].map((it) => it.open);
        [...piece.querySelectorAll("details")].forEach((it, at) => { if (at < opened.length) it.open = opened[at]; });
      }
      old.replaceWith(piece);
      leave?.(piece);
    } else {
      const into = id(piece.dataset.into || "");
      if (!into || piece.dataset.settled === "yes") return;
      // Whether a session fits a search, the server alone knows.
      if (into.id === "rows" && [...new URLSearchParams(location.search).values()].some(Boolean)) return;
      const stays = atBottom();
      if (piece.dataset.at === "start") into.prepend(piece); else into.append(piece);
      if (stays && piece.dataset.into === "items") toBottom();
    }
    complete(piece);
  }

  function settleEmptiness() {
    const asks = id("asks");
    if (asks) id("empty").hidden = asks.querySelector(".card:not(.settled)") !== null;
    const recent = id("recent");
    if (recent) {
      while (recent.children.length > 8) recent.lastElementChild.remove();
      id("no-recent").hidden = recent.children.length > 0;
    }
    const nothing = id("nothing");
    if (nothing) nothing.hidden = id("items").children.length > 0;
  }

  // On a phone the side stands below the conversation, so the end of the page is not the end of what is said.
  // The page does not follow the conversation while that would move a question away from whoever reads it.
  const isReading = () => forms().some((form) => { const at = form.getBoundingClientRect(); return at.bottom > 0 && at.top < window.innerHeight; });
  const atBottom = () => id("composer") !== null && id("composer").parentElement.getBoundingClientRect().bottom <= window.innerHeight + 160 && !isReading();
  const toBottom = () => id("composer").parentElement.scrollIntoView({ block: "end" });

  // Aim: an answer counts only if its ask was there, in that place, for a moment before the key or the finger went down.

  const GRACE = 700;
  const fresh = new WeakMap(); // when a form appeared, or was selected among asks that had just changed
  const moved = new WeakMap(); // when a form last moved on the screen, which matters to those who point
  const sent = new WeakSet(); // forms that were answered on this page
  const timers = new WeakMap();
  let changed = -Infinity; // when an ask last left the list without an answer from this page
  let gesture = -Infinity; // when the last key or finger went down
  let byKeys = false;

  const forms = () => [...document.querySelectorAll(".answers")];
  const places = () => new Map(forms().map((form) => [form, form.getBoundingClientRect()]));

  function unsettle(form, map, at = performance.now()) {
    map.set(form, Math.max(at, map.get(form) ?? -Infinity));
    form.classList.add("unsteady");
    clearTimeout(timers.get(form));
    timers.set(form, setTimeout(() => form.classList.remove("unsteady"), GRACE));
  }

  function settlePlaces(before) {
    for (const [form, now] of places()) {
      const was = before.get(form);
      if (!was) unsettle(form, fresh);
      else if (Math.abs(now.top - was.top) > 2 || Math.abs(now.left - was.left) > 2) unsettle(form, moved);
    }
  }

  function steadily(change) {
    const before = places();
    change();
    settlePlaces(before);
  }

  document.addEventListener("pointerdown", (event) => { byKeys = false; gesture = event.timeStamp; }, true);
  document.addEventListener("keydown", (event) => { byKeys = true; gesture = event.timeStamp; }, true);
  // Screen readers press buttons without a key or a pointer; they name the button, as keys do.
  document.addEventListener("click", (event) => {
    if (event.isTrusted && event.detail === 0) { byKeys = true; gesture = event.timeStamp; }
  }, true);

  // INVARIANT: every answer of a page with scripts passes here, whether by button, key or Enter.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches(".answers")) return;
    const since = Math.max(fresh.get(form) ?? -Infinity, byKeys ? -Infinity : moved.get(form) ?? -Infinity);
    if (gesture - since >= GRACE) { sent.add(form); return; }
    event.preventDefault();
    event.stopImmediatePropagation();
    tell("Not answered: the page changed just before. Look again, then repeat your answer.");
  }, true);

  // The focus never passes from an ask that ends to another ask. Typed words must not become keys, so they leave the list.
  function leaving(old, form) {
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const isOwn = sent.has(form);
    if (!isOwn) changed = performance.now();
    return (instead) => {
      if (!focus) return;
      if (!isOwn && focus.matches("input, textarea, select")) {
        const typed = focus.value.trim();
        id("main").focus({ preventScroll: true });
        tell(`This ask ended while you were writing, and nothing was sent${typed ? `: ${typed}` : "."}`);
      } else {
        instead.tabIndex = -1;
        instead.focus({ preventScroll: true });
      }
    };
  }

  // Keys that were on their way when an ask left may have come to another one.
  document.addEventListener("focusin", (event) => {
    const form = byKeys && performance.now() - changed < GRACE && event.target.closest(".card, .asked")?.querySelector(".answers");
    if (form) unsettle(form, fresh, changed);
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) for (const form of forms()) unsettle(form, fresh); });
  let before = null;
  document.addEventListener("htmx:beforeSwap", () => { before = places(); });
  document.addEventListener("htmx:afterSwap", () => { if (before) settlePlaces(before); });
  document.addEventListener("htmx:afterRequest", (event) => { if (!event.detail.successful) sent.delete(event.target); });

  // What the agent is saying right now

  function say(told) { steadily(() => write(told)); }

  function write(told) {
    let item = id(told.id);
    const stays = atBottom();
    if (!item) {
      item = document.createElement("li");
      item.id = told.id;
      item.className = "item spoke";
      const by = document.createElement("div");
      by.className = "by";
      by.textContent = "agent";
      const what = document.createElement("div");
      what.className = "what pre saying";
      item.append(by, what);
      id("items").append(item);
      settleEmptiness();
    }
    const what = item.querySelector(".saying");
    if (!what) return;
    const known = Number(item.dataset.to || 0);
    if (told.at === undefined) { if (told.to >= known) { what.textContent = told.text; item.dataset.to = told.to; } }
    else if (told.at === known) { what.append(told.text); item.dataset.to = told.to; }
    if (stays) toBottom();
  }

  // The stream

  let source = null;
  let cursor = "";

  function connect() {
    if (!body.dataset.live || source) return;
    const where = new URL(body.dataset.live, location.href);
    if (cursor) where.searchParams.set("after", cursor);
    source = new EventSource(where);
    const hear = (name, does) => source.addEventListener(name, (event) => {
      if (event.lastEventId) cursor = event.lastEventId;
      does(event.data);
    });
    hear("put", put);
    hear("seen", () => {});
    hear("say", (data) => say(JSON.parse(data)));
    hear("doing", (data) => { const line = id("doing"); if (line) line.textContent = JSON.parse(data).text; });
    hear("count", (data) => count(JSON.parse(data).asks));
    hear("only", (data) => only(JSON.parse(data)));
    hear("reload", () => location.reload());
    source.onopen = () => shine(true);
    source.onerror = () => {
      shine(false);
      if (source && source.readyState === EventSource.CLOSED) { source = null; setTimeout(connect, 3000); }
    };
  }

  function disconnect() { if (source) { source.close(); source = null; shine(false); } }

  function shine(on) {
    const light = id("live");
    if (!light) return;
    light.classList.toggle("on", on);
    light.textContent = on ? "●" : "○";
    light.title = on ? "live" : "not live; trying again";
    light.setAttribute("aria-label", on ? "This page is live" : "This page is not live");
  }

  function count(asks) {
    const shown = id("count");
    if (shown) { shown.textContent = asks; shown.hidden = !asks; }
    document.title = (asks ? `(${asks}) ` : "") + document.title.replace(/^\(\d+\) /, "");
  }

  function only(told) {
    const open = new Set(told.ids);
    const list = id(told.in);
    steadily(() => {
      for (const card of [...(list?.children || [])].filter((it) => !open.has(it.id))) {
        const asked = card.querySelector(".answers");
        const leave = asked ? leaving(card, asked) : null;
        card.remove();
        leave?.(list);
      }
      settleEmptiness();
    });
  }

  // A browser has few connections for one site; pages that nobody sees give theirs back, except the inbox.
  document.addEventListener("visibilitychange", () => {
    if (body.classList.contains("inbox")) return;
    if (document.hidden) disconnect(); else connect();
  });
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  // Keys

  // The selected ask is the one that has the focus; where none has it, no key answers anything.
  const here = () => document.activeElement.closest?.("#asks .card");

  function move(by) {
    const all = [...document.querySelectorAll("#asks .card")];
    let at = all.indexOf(here()) + by;
    while (all[at]?.classList.contains("settled")) at += by;
    const next = all[at] || (here() ? null : all.find((card) => !card.classList.contains("settled")));
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    const field = event.target;
    // A key that belongs to an input method is still being written.
    if (event.isComposing || event.keyCode === 229) return;
    if (field.id === "text" && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      field.form.requestSubmit();
      return;
    }
    const menu = document.querySelector("details.menu[open]");
    if (menu && event.key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); return; }
    const isField = field.matches?.("input, textarea, select");
    if (isField && event.key === "Escape") { field.blur(); return; }
    if (isField && field.name === "reason" && event.key === "Enter") {
      event.preventDefault();
      field.form.querySelector('[value="deny"]').click();
      return;
    }
    if (isField || event.ctrlKey || event.metaKey || event.altKey || event.getModifierState("AltGraph")) return;
    // Single keys act while the focus is in the list, and only for those who want them.
    if (body.dataset.keys !== "on" || !id("asks")?.contains(document.activeElement)) return;
    // With Caps Lock an `a` would look like an `A`, which approves more.
    if (event.shiftKey !== (event.key === "A")) return;
    if (event.key === "j") return move(1);
    if (event.key === "k") return move(-1);
    const card = here();
    // A key that is held down answers one card, and not those that come into its place.
    if (!card || card.classList.contains("settled") || event.repeat) return;
    if (event.key === "d") { event.preventDefault(); card.querySelector('input[name="reason"]')?.focus(); return; }
    const wanted = card.querySelector(`[data-key="${["a", "A", "p", "w"].includes(event.key) ? event.key : "none"}"]`);
    if (wanted) { event.preventDefault(); wanted.click(); }
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    const form = event.target;
    if (form.id === "composer" && event.detail.successful) { form.reset(); keepDraft(""); id("text").focus(); }
  });
  document.addEventListener("htmx:sendError", () => tell("Curtainwall does not answer, so this may not have arrived; what you typed is still here"));

  function tell(words) {
    const line = document.createElement("p");
    line.className = "bad";
    line.setAttribute("role", "alert");
    line.textContent = words;
    // The same words again would move the page once more.
    if (id("words").textContent.trim() !== words) steadily(() => id("words").replaceChildren(line));
  }

  // What is typed outlives a reload of the page, in this window alone and until somebody signs in anew.

  // A browser may keep nothing at all, and says so by a fault.
  const kept = (does) => { try { return does(window.sessionStorage, `draft ${location.pathname}`); } catch { return null; } };
  function keepDraft(text) { kept((store, name) => { if (text) store.setItem(name, text); else store.removeItem(name); }); }
  if (!body.dataset.live) kept((store) => store.clear());
  if (id("text")) {
    id("text").value ||= kept((store, name) => store.getItem(name)) || "";
    id("text").addEventListener("input", () => keepDraft(id("text").value));
  }

  // Words that tell of success go by themselves; refusals stay.
  new MutationObserver(() => {
    const words = id("words").querySelector("p.good");
    if (words) setTimeout(() => steadily(() => words.remove()), 6000);
  }).observe(id("words"), { childList: true });

  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });

  document.addEventListener("htmx:load", (event) => tellTimes(event.detail.elt));
  tellTimes(document);
  if (id("items")) toBottom();
  for (const form of forms()) unsettle(form, fresh);
  connect();
})();
