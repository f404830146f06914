// Draws with uPlot what the flight recorder kept, or figures by day or week (`dates`), from the JSON beside the page.
// Without it the tables tell the same.
(() => {
  "use strict";
  const HIGH = 130;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const clock = (t) => new Date(t * 1000).toISOString().slice(11, 19);
  const number = (v) => (v === null || v === undefined ? "?" : String(Math.round(v * 100) / 100));
  const drawn = new Map(); // element -> {plots, told}

  function element(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text) node.textContent = text;
    return node;
  }

  const day = (t) => new Date(t * 1000).toISOString().slice(0, 10);

  function axes(lanes, dates) {
    const look = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 },
                   font: "11px system-ui, sans-serif" };
    const time = { ...look, space: 70, size: 26,
                   values: (u, splits, axis, space, step) => splits.map((t) => (dates ? day(t).slice(5) : clock(t).slice(0, step < 60 ? 8 : 5))) };
    const value = lanes
      ? { ...look, size: 142, splits: () => lanes.map((_, n) => n), values: () => lanes }
      : { ...look, size: (u, values) => Math.max(46, 18 + 7 * Math.max(0, ...(values || []).map((v) => String(v).length))), space: 28 };
    return [time, value];
  }

  // vertical lines at the events; the first plot names them
  function marksOf(marks, named) {
    return (u) => {
      const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = css("--bad");
      ctx.lineWidth = ratio;
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.setLineDash([4 * ratio, 3 * ratio]);
      let free = -Infinity;
      for (const mark of marks) {
        const x = Math.round(u.valToPos(mark.at, "x", true));
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
        const width = ctx.measureText(mark.code).width;
        const at = Math.min(x + 3 * ratio, bbox.left + bbox.width - width);
        if (named && at > free) { ctx.fillText(mark.code, at, bbox.top + 11 * ratio); free = at + width + 6 * ratio; }
      }
      ctx.restore();
    };
  }

  function plot(into, told, { title, series, data, lanes, words, marks, named }) {
    const box = element("div", "plot");
    box.append(element("h3", "", title));
    const canvas = element("div", "canvas");
    const now = element("p", "now quiet", "");
    box.append(canvas, now);
    into.append(box);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", title);
    if (series.some((one) => one.label)) {
      const key = element("p", "key small");
      for (const one of series) {
        const word = element("span", "", one.label);
        word.style.setProperty("--of", one.stroke);
        key.append(word);
      }
      box.insertBefore(key, canvas);
    }
    const last = told.times[told.times.length - 1], marked = marks.map((m) => m.at);
    const from = told.times[0], to = Math.max(last, ...marked.filter((at) => at < last + 120), from + 1);
    return new uPlot({
      width: Math.max(canvas.clientWidth, 200), height: HIGH, legend: { show: false }, axes: axes(lanes, told.dates),
      cursor: { sync: { key: "recorder" }, y: false, drag: { x: false, y: false } },
      scales: { x: { time: true, range: [from, to] }, y: lanes ? { range: [-0.6, lanes.length - 0.4] } : {
        range: (u, low, high) => (low === null ? [0, 1] : low === high ? (low === 0 ? [0, 1] : [low - 1, high + 1]) : uPlot.rangeNum(low, high, 0.12, true)) } },
      series: [{}, ...series],
      hooks: { draw: [marksOf(marks, named)], setCursor: [(u) => {
        now.textContent = u.cursor.idx === null || u.cursor.idx === undefined ? "" : `${(told.dates ? day : clock)(told.times[u.cursor.idx])}  ${words(u.cursor.idx)}`;
      }] },
    }, [told.times, ...data], canvas);
  }

  function draw(into, told) {
    into.replaceChildren();
    const plots = [];
    const strong = { stroke: css("--accent"), width: 2, points: { show: false } };
    const faint = { stroke: css("--blind"), width: 1, alpha: 0.45, points: { show: false } };
    const tones = ["--accent", "--doubt", "--many", "--watch"].map(css);
    for (const metric of told.metrics) {
      const named = metric.names || [];
      if (named.length) {
        const gap = metric.values.flat().length < 60;
        plots.push(plot(into, told, {
          title: metric.unit ? `${metric.title}, ${metric.unit}` : metric.title, marks: [], named: false, data: metric.values,
          series: named.map((label, n) => ({ label, stroke: tones[n], width: 2, spanGaps: true, points: { show: gap, size: 5, fill: tones[n] } })),
          words: (n) => named.map((name, of) => `${name} ${number(metric.values[of][n])}`).join(", "),
        }));
        continue;
      }
      const [mine, ...others] = metric.values;
      plots.push(plot(into, told, {
        title: metric.unit ? `${metric.title}, ${metric.unit}` : metric.title,
        // the one in question is drawn last, over the others
        series: [...others.map(() => faint), strong], data: [...others, mine], marks: told.marks, named: plots.length === 0,
        words: (n) => {
          const rest = others.map((values) => values[n]).filter((v) => v !== null);
          const spread = rest.length ? `, others ${number(Math.min(...rest))} to ${number(Math.max(...rest))}` : "";
          return `${told.gpus[0]}: ${number(mine[n])} ${metric.unit}${spread}`;
        },
      }));
    }
    const { names, values } = told.clocks;
    if (names.length) {
      plots.push(plot(into, told, {
        title: `Clocks of ${told.gpus[0]} held by`, lanes: names, marks: told.marks, named: false,
        series: names.map(() => ({ stroke: css("--doubt"), width: 6, points: { show: true, size: 5, fill: css("--doubt") } })),
        data: values.map((row, n) => row.map((on) => (on ? n : null))),
        words: (n) => names.filter((_, lane) => values[lane][n]).join(", ") || "nothing",
      }));
    }
    drawn.set(into, { plots, told });
  }

  async function look() {
    for (const into of document.querySelectorAll("[data-plots]")) {
      if (into.dataset.drawn) continue;
      into.dataset.drawn = "yes";
      try {
        const answer = await fetch(into.dataset.plots, { headers: { Accept: "application/json" }, credentials: "same-origin" });
        if (answer.ok) draw(into, await answer.json());
      } catch { /* the tables below tell the same */ }
    }
  }

  const again = () => { for (const [into, { told }] of drawn) { if (into.isConnected) draw(into, told); else drawn.delete(into); } };
  addEventListener("resize", () => {
    for (const { plots } of drawn.values()) {
      for (const u of plots) u.setSize({ width: Math.max(u.root.parentElement.clientWidth, 200), height: HIGH });
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  document.addEventListener("htmx:afterSwap", look);
  look();
})();
