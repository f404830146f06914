// The fleet's map: arrow keys between cells, one tab stop for all of them, and what a cell is in words below the map.
(() => {
  "use strict";
  const GAP = 90; // pixels between two racks, at most
  const cells = () => [...document.querySelectorAll("#live .rack a")];
  const cellOf = (node) => node instanceof Element ? node.closest(".rack a") : null;
  let last = ""; // address of the cell that had the focus

  function one(stop) {
    const all = cells();
    const chosen = all.find((cell) => cell === stop || cell.getAttribute("href") === last) || all[0];
    for (const cell of all) cell.setAttribute("tabindex", cell === chosen ? "0" : "-1");
    return chosen;
  }
  function tell(cell) {
    const line = document.getElementById("readout");
    if (!line) return;
    line.hidden = !cell;
    if (!cell) return;
    const title = cell.querySelector("title").textContent;
    const look = document.getElementById(cell.querySelector("use").getAttribute("href").slice(1));
    line.textContent = title.includes(":") || !look ? title : `${title}: ${look.dataset.words}`;
  }
  // by what is seen, so that up and down cross from one rack into the next
  function beside(cell, dx, dy) {
    cell.scrollIntoView({ block: "nearest" });
    const box = cell.getBoundingClientRect();
    const x = box.left + box.width / 2, y = box.top + box.height / 2;
    for (let far = box.width; far < box.width + GAP; far += 8) {
      const found = cellOf(document.elementFromPoint(x + dx * far, y + dy * far));
      if (found && found !== cell) return found;
    }
    const all = cells();
    return all[all.indexOf(cell) + (dx || dy)];
  }
  const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  document.addEventListener("keydown", (event) => {
    const cell = cellOf(event.target);
    if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = event.key === "Home" || event.key === "End" ? cells() : [];
    const next = WAYS[event.key] ? beside(cell, ...WAYS[event.key]) : event.key === "Home" ? all[0] : all[all.length - 1];
    if (!next) return;
    event.preventDefault();
    cell.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  });
  document.addEventListener("focusin", (event) => {
    const cell = cellOf(event.target);
    if (cell) { last = cell.getAttribute("href"); tell(cell); }
  });
  document.addEventListener("mouseover", (event) => {
    const cell = cellOf(event.target);
    if (cell || !cellOf(document.activeElement)) tell(cell);
  });
  document.addEventListener("htmx:afterSwap", () => one(cellOf(document.activeElement)));
  one();
})();
