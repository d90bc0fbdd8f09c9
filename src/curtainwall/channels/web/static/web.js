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
    for (const piece of [...held.content.children]) place(piece);
    settleEmptiness();
  }

  function place(piece) {
    const old = id(piece.id);
    if (old) {
      // Whoever types into it keeps what they typed; it comes again with the next change.
      const typing = document.activeElement?.matches("input, select, textarea") && old.contains(document.activeElement);
      if (typing && piece.id.startsWith("rail-")) return;
      const isSettled = piece.dataset.settled === "yes";
      // An open card stays as it was asked, with whatever somebody has typed into it.
      if (old.classList.contains("card") && !isSettled) return;
      if (old.classList.contains("card") && old.contains(document.activeElement)) move(1, old, byKeys);
      if (old.matches(".card, .asked") || piece.matches(".asked")) hold();
      // What was folded stays folded, unless it became a question or stopped being one.
      if (!isSettled && !piece.classList.contains("asked") && !old.classList.contains("asked")) {
        const opened = [...old.querySelectorAll("details")].map((it) => it.open);
        [...piece.querySelectorAll("details")].forEach((it, at) => { if (at < opened.length) it.open = opened[at]; });
      }
      old.replaceWith(piece);
    } else {
      const into = id(piece.dataset.into || "");
      if (!into || piece.dataset.settled === "yes") return;
      // Whether a session fits a search, the server alone knows.
      if (into.id === "rows" && [...new URLSearchParams(location.search).values()].some(Boolean)) return;
      const stays = atBottom();
      if (piece.matches(".asked") || (piece.matches(".card") && !cards().length)) hold();
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
  const atBottom = () => id("composer") !== null && id("composer").parentElement.getBoundingClientRect().bottom <= window.innerHeight + 160;
  const toBottom = () => id("composer").parentElement.scrollIntoView({ block: "end" });

  // Where things have just moved, a finger on its way down would answer another ask than the one it was meant for; keys name theirs.

  let held = 0;
  function hold() {
    body.classList.add("moved");
    clearTimeout(held);
    held = setTimeout(() => body.classList.remove("moved"), 700);
  }

  // What the agent is saying right now

  function say(told) {
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
    for (const card of [...(id(told.in)?.children || [])]) if (!open.has(card.id)) { card.remove(); hold(); }
    settleEmptiness();
  }

  // A browser has few connections for one site; pages that nobody sees give theirs back, except the inbox.
  document.addEventListener("visibilitychange", () => {
    if (body.classList.contains("inbox")) return;
    if (document.hidden) disconnect(); else connect();
  });
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  // Keys

  const cards = () => [...document.querySelectorAll("#asks .card:not(.settled)")];

  // Whoever points sees where they are, and the page stays there; whoever goes by keys is taken along.
  let byKeys = false;
  document.addEventListener("pointerdown", () => { byKeys = false; }, true);
  document.addEventListener("keydown", () => { byKeys = true; }, true);

  function move(by, from, scrolls = true) {
    const all = cards();
    if (!all.length) return;
    const at = all.indexOf(from || document.querySelector(".card.at") || document.activeElement.closest?.(".card"));
    const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
    for (const card of all) card.classList.toggle("at", card === next);
    next.focus({ preventScroll: true });
    if (scrolls) next.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    const field = event.target;
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
    if (isField || event.ctrlKey || event.metaKey || event.altKey || !id("asks")) return;
    if (event.key === "j") return move(1);
    if (event.key === "k") return move(-1);
    const card = document.querySelector(".card.at") || document.activeElement.closest?.(".card");
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
    id("words").replaceChildren(line);
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
    hold();
    const words = id("words").querySelector("p.good");
    if (words) setTimeout(() => words.remove(), 6000);
  }).observe(id("words"), { childList: true });

  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });

  document.addEventListener("htmx:load", (event) => tellTimes(event.detail.elt));
  tellTimes(document);
  if (id("items")) toBottom();
  connect();
})();
