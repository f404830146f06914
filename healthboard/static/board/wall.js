// The wall's own: times that age, and a word when nothing was heard for a minute. It controls nothing.
(() => {
  "use strict";
  const STALE_MS = 60000;
  let heard = Date.now();
  const span = (s) => s < 100 ? `${Math.round(s)} s` : s < 6000 ? `${Math.round(s / 60)} min`
    : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
  document.addEventListener("htmx:afterRequest", (event) => {
    const status = event.detail.xhr?.status;
    if (status >= 200 && status < 400) heard = Date.now();
  });
  setInterval(() => {
    for (const node of document.querySelectorAll("time[data-age]")) {
      node.textContent = `${span(Math.max((Date.now() - Date.parse(node.dateTime)) / 1000, 0))} ago`;
    }
    for (const node of document.querySelectorAll("time[data-until]")) {
      const s = (Date.parse(node.dateTime) - Date.now()) / 1000;
      node.textContent = s > 0 ? span(s) : node.dataset.until;
    }
    document.getElementById("stale").hidden = Date.now() - heard < STALE_MS;
  }, 1000);
})();
