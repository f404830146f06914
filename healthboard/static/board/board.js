// What htmx does not do: times that age, dialogs, keys, and live pages that do not jump. Every page works without it.
(() => {
  "use strict";
  const POLL_HIDDEN_MS = 60000, STALE_MS = 20000;
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.add("js");

  // -- times --------------------------------------------------------------------------------------------------
  let skew = 0; // server's clock minus ours, so that a wrong clock here does not lie about ages
  const now = () => Date.now() + skew;
  const span = (s) => s < 100 ? `${Math.round(s)} s` : s < 6000 ? `${Math.round(s / 60)} min`
    : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
  const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  function age() {
    for (const node of $$("time[data-age]")) {
      const s = (now() - Date.parse(node.dateTime)) / 1000;
      setText(node, s >= 0 ? `${span(s)} ago` : `in ${span(-s)}`);
    }
    for (const node of $$("time[data-until]")) {
      const s = (Date.parse(node.dateTime) - now()) / 1000;
      setText(node, s > 0 ? span(s) : node.dataset.until);
    }
    if (heard && live()) {
      const stale = !paused && !document.hidden && Date.now() - heard > STALE_MS;
      $("#stale").hidden = !stale;
      setText($("[data-live-words]"), paused ? "Paused" : `Live, checked ${span((Date.now() - heard) / 1000)} ago`);
    }
  }

  // -- live pages ---------------------------------------------------------------------------------------------
  let paused = false, heard = 0, asked = 0;
  const live = () => $("[data-live]");
  const isPoll = (event) => event.detail.elt && event.detail.elt.hasAttribute("data-live");
  function busy() {
    // Whoever is about to act must not have the ground moved: an open dialog, a written reason, a selection, a row or
    // a cell under the pointer or the keys.
    const at = live();
    if (!at) return false;
    const field = document.activeElement;
    // An open dialog and what is filled in again after a log-in stay as well.
    return Boolean($("dialog[open]") || $("[data-given]", at) || $("input[name=row]:checked", at) || $("tbody tr:hover, tbody tr:focus-within, .rack a:hover, .rack a:focus", at)
      || (field && at.contains(field) && field.matches("input, textarea, select")));
  }
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!isPoll(event)) return;
    const forced = event.detail.requestConfig.triggeringEvent?.type === "refresh";
    if (!forced && (paused || (document.hidden && Date.now() - asked < POLL_HIDDEN_MS))) event.preventDefault();
    else asked = Date.now();
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const answer = event.detail.xhr;
    if (!isPoll(event) || !answer || answer.status < 200 || answer.status >= 400) return;
    heard = Date.now();
    if (answer.status === 204) forcedShow = false;
    const told = Date.parse(answer.getResponseHeader("Date") || "");
    if (told && Math.abs(told - Date.now()) > 2000) skew = told - Date.now();
  });
  let opened = [], cursorRow = "", focused = null, forcedShow = false;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const target = event.detail.target;
    if (!target || target.id !== "live" || !isPoll(event)) { keep(); return; }
    if (!forcedShow && event.detail.xhr.status === 200) {
      const fresh = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
      if (busy() || (scrolled() && order(fresh) !== order(document))) {
        event.detail.shouldSwap = false;
        offer(fresh);
        reframe(fresh);
        return;
      }
    }
    keep();
  });
  // who has scrolled into a list reads it: rows that come or go above would move it away
  const scrolled = () => Boolean(live()) && live().getBoundingClientRect().top < -40;
  const order = (root) => $$("[data-list] tbody tr[data-row]", root).map((row) => row.dataset.row).join(" ");
  function keep() {
    opened = $$("#live details[open]").map((node) => node.id).filter(Boolean);
    cursorRow = $("tr.cursor")?.dataset.row || "";
    focused = placeOf(document.activeElement);
  }
  // an element by what it is and does, so that the one that takes its place is found
  const keyOf = (node) => [node.tagName, ...["id", "href", "name", "value"].map((name) => node.getAttribute(name) || "")].join(" ");
  function placeOf(node) {
    const at = live();
    if (!at || !node || node === at || !at.contains(node)) return null;
    const key = keyOf(node);
    return { key, tag: node.tagName, nth: $$(node.tagName, at).filter((other) => keyOf(other) === key).indexOf(node) };
  }
  function refocus() {
    if (!focused || document.activeElement !== document.body) return;
    $$(focused.tag, live()).filter((node) => keyOf(node) === focused.key)[focused.nth]?.focus({ preventScroll: true });
  }
  document.addEventListener("htmx:afterSwap", () => {
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    if (cursorRow) $(`tr[data-row="${CSS.escape(cursorRow)}"]`)?.classList.add("cursor");
    $("#pill").hidden = true;
    forcedShow = false;
    refocus(); say(); age(); count();
  });
  // the words of the page without its times, which go on by themselves
  function words(root) {
    const copy = $("#live", root)?.cloneNode(true);
    if (!copy) return "";
    for (const time of $$("time, input[type=hidden]", copy)) time.remove();
    return copy.textContent.replace(/\s+/g, " ");
  }
  function offer(fresh) {
    const pill = $("#pill");
    if (words(fresh) === words(document)) { pill.hidden = true; return; }
    const here = new Set($$("tr[data-row]").map((row) => row.dataset.row));
    const added = $$("tr[data-row]", fresh).filter((row) => !here.has(row.dataset.row)).length;
    pill.textContent = added ? `${added} new – show` : "Changed – show";
    pill.hidden = false;
  }
  // the state of the system is told even while the list stands still, and the list does not move for it
  function reframe(fresh) {
    const now = $("#frame"), next = $("#frame", fresh);
    if (!now || !next || now.contains(document.activeElement) || now.textContent === next.textContent) return;
    const top = $("#main").getBoundingClientRect().top;
    next.removeAttribute("hx-swap-oob");
    now.replaceWith(document.adoptNode(next));
    window.scrollBy(0, $("#main").getBoundingClientRect().top - top);
  }
  $("#pill")?.addEventListener("click", () => {
    forcedShow = true;
    htmx.trigger(live(), "refresh");
  });
  const told = () => (live() || $("#reading"))?.dataset.say;
  let spoken = told();
  function say() {
    const words = told();
    if (words && words !== spoken) { spoken = words; $("#spoken").textContent = words; }
  }
  function pause(on) {
    paused = on;
    const button = $("[data-pause]");
    button.setAttribute("aria-pressed", String(on));
    button.textContent = on ? "Resume" : "Pause";
    if (!on && live()) htmx.trigger(live(), "refresh");
    age();
  }
  $("[data-pause]")?.addEventListener("click", () => pause(!paused));
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && live() && !paused) { heard = Date.now(); htmx.trigger(live(), "refresh"); }
  });

  // -- dialogs and forms --------------------------------------------------------------------------------------
  let opener = null;
  function open(dialog, from) {
    opener = from || document.activeElement;
    dialog.showModal();
    (dialog.querySelector("[data-focus]:not(:disabled)") && !dialog.querySelector("[required]")
      ? dialog.querySelector("[data-focus]") : dialog.querySelector("[required], select, textarea, button"))?.focus();
    dialog.addEventListener("close", () => {
      const back = opener?.isConnected ? opener : $(`[data-dialog="${dialog.id}"]`);
      back?.focus();
    }, { once: true });
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-dialog]");
    const dialog = link && document.getElementById(link.dataset.dialog);
    if (dialog && !event.ctrlKey && !event.metaKey) { event.preventDefault(); open(dialog, link); return; }
    if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
    const menu = $("#menu");
    if (menu?.open && !menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-once]")) return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "yes";
    setTimeout(() => { for (const button of $$("button:not([type=button])", form)) button.disabled = true; }, 0);
  });
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  // -- selection ----------------------------------------------------------------------------------------------
  function count() {
    const bar = $("[data-bulk]");
    if (!bar) return;
    const chosen = $$("input[name=row]:checked").length;
    bar.classList.toggle("some", chosen > 0);
    setText($("[data-bulk-count]", bar), chosen ? `${chosen} selected` : "Select like cases to answer them together:");
    for (const button of $$("button", bar)) button.disabled = chosen === 0;
  }
  document.addEventListener("change", (event) => { if (event.target.matches("input[name=row]")) count(); });

  // -- keys: they open and move, they never carry anything out --------------------------------------------------
  const rows = () => $$("[data-list] tbody tr[data-row]");
  function move(by) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.classList.contains("cursor"));
    const to = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1);
    for (const row of all) row.classList.toggle("cursor", row === all[to]);
    const link = $("a.open", all[to]);
    link?.focus({ preventScroll: true });
    all[to].scrollIntoView({ block: "nearest" });
  }
  const KEYS = {
    j: () => move(1),
    k: () => move(-1),
    x: () => { const box = $("tr.cursor input[type=checkbox]"); if (box) { box.checked = !box.checked; count(); } },
    p: () => live() && pause(!paused),
    "/": () => $("#find")?.focus(),
    "?": () => $("#help")?.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (document.body.dataset.keys !== "on" || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.matches("input, textarea, select, [contenteditable]")) return;
    if ($("dialog[open]")) return;
    const answer = $(`[data-key="${CSS.escape(event.key)}"][href]`);
    if (answer) { event.preventDefault(); answer.click(); return; }
    if (event.key === "Enter" && event.target === document.body) {
      const row = $("tr.cursor") || rows()[0];
      const link = row && $("a.open", row);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const does = KEYS[event.key];
    if (does) { event.preventDefault(); does(); }
  });

  // -- start --------------------------------------------------------------------------------------------------
  if (live()) {
    heard = asked = Date.now();
    $("[data-live-bar]").hidden = false;
  }
  if (document.body.dataset.keys === "on" && $("[data-keys-hint]")) $("[data-keys-hint]").hidden = false;
  count(); age();
  setInterval(age, 1000);
})();
