"use strict";
// Shared by all pages: quantities, and the plots that need no script of their own (data.plots, as page.rs writes them).
// Names are users' text: they enter the page as text nodes only. The page's own script, if there is one, follows.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);

// --- quantities, as human.rs prints them --------------------------------------------------------------------------

const three = v => {
  const a = Math.abs(v);
  return a === 0 ? "0" : a < 9.995 ? v.toFixed(2) : a < 99.95 ? v.toFixed(1) : v.toFixed(0);
};
const scaled = (v, step, units) => {
  let i = 0;
  while (Math.abs(v) >= 999.5 && i < units.length - 1) { v /= step; i++; }
  return [v, units[i]];
};
const si = (v, unit) => {
  const [s, prefix] = scaled(v, 1000, ["", "k", "M", "G", "T", "P", "E"]);
  return (three(s) + " " + prefix + unit).trimEnd();
};
const ns = v => {
  const [s, unit] = scaled(v, 1000, ["ns", "µs", "ms", "s"]);
  return (unit === "ns" && Number.isInteger(s) ? s : three(s)) + " " + unit;
};
const count = n => Math.round(n).toLocaleString("en-US");
const ratio = r => {
  const p = r * 100, a = Math.abs(p);
  if (p === 0) return "0 %";
  if (a < 0.001) return p.toExponential(1) + " %";
  if (p === 100) return "100 %";
  if (a < 1) return p.toFixed(3) + " %";
  if (a >= 99.95 && a < 100) return (Math.floor(p * 100) / 100).toFixed(2) + " %";
  return three(p) + " %";
};
const deviation = r => {
  const p = r * 100, a = Math.abs(p);
  return a < 1e-4 ? "0 %" : (p > 0 ? "+" : "−") + a.toFixed(a < 0.1 ? 4 : 2) + " %";
};
const pps = v => si(v, "pps");
const bps = v => si(v, "b/s");
// Axis labels: as few digits as the number needs.
const brief = f => v => f(v).replace(/(\.\d*?)0+(?= )/, "$1").replace(/\.(?= )/, "");

const el = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

// --- plots --------------------------------------------------------------------------------------------------------

const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const HEIGHT = 210;
const FONT = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
let plots = [];
// Functions that draw plots, for a change of colors.
const redraws = [];

// Removes plots and everything else from `box`.
function clear(box) {
  plots = plots.filter(({ u, body, watch }) => {
    if (!box.contains(body)) return true;
    watch.disconnect();
    u.destroy();
    return false;
  });
  box.replaceChildren();
}

function panel(box, title, sub) {
  const body = el("div");
  box.append(el("div", { className: "plot" }, el("h3", { textContent: title }), el("p", { className: "sub", textContent: sub }), body));
  return body;
}

function empty(box, title, why) {
  panel(box, title, "").append(el("div", { className: "empty", textContent: why }));
}

function draw(body, options, columns) {
  const axis = { stroke: style("--muted"), font: FONT, grid: { stroke: style("--grid"), width: 1 }, ticks: { show: false } };
  options.axes = [{ ...axis, size: 26, ...options.x }, { ...axis, size: 66, ...options.y }];
  const width = () => Math.max(200, body.clientWidth);
  const u = new uPlot({ ...options, width: width(), height: HEIGHT, legend: { markers: { width: 0, fill: (u, i) => u.series[i].stroke() } } }, columns, body);
  const watch = new ResizeObserver(() => { if (u.width !== width()) u.setSize({ width: width(), height: HEIGHT }); });
  watch.observe(body);
  plots.push({ u, body, watch });
}

const value = f => (u, v) => (v === null || v === undefined ? "–" : f(v));

const color = i => style("--s" + i % 16);
// The color of series `i`: that of its label on the whole page (page.rs, Page::colors), or of its position in the plot.
const hue = (series, i) => {
  const at = (data.colors || []).indexOf(series.label);
  return color(at < 0 ? i : at);
};

function logTicks(low, high) {
  const decades = Math.log10(high / low);
  const marks = decades < 0.7 ? null : decades < 2.2 ? [1, 2, 5] : decades < 4 ? [1, 3] : [1];
  if (!marks) {
    const raw = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(raw));
    const step = unit * [1, 2, 5, 10].find(m => m * unit >= raw);
    const ticks = [];
    for (let v = Math.ceil(low / step) * step; v <= high; v += step) ticks.push(v);
    return ticks;
  }
  const ticks = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high) + 1; e++)
    for (const m of marks) { const v = m * 10 ** e; if (v >= low && v <= high) ticks.push(v); }
  return ticks;
}


// --- plots that are data ------------------------------------------------------------------------------------------

const UNITS = {
  count: v => si(v, ""), number: v => Math.abs(v) >= 100 ? count(v) : String(Number(v.toPrecision(3))), pps, bps, octets: v => si(v, "B"), length: v => count(v) + " B", ns, ratio,
  s: v => (Math.abs(v) >= 1000 ? count(v) : Number(v.toPrecision(4))) + " s", percent: v => three(v) + " %",
};
const TIP = { ...UNITS, count: v => Number.isInteger(v) ? count(v) : three(v) };

// The range of an axis, and its ticks if it is logarithmic.
function scale(values, axis, pad) {
  const positive = values.filter(v => v > 0);
  if (axis.log && positive.length) {
    const low = positive.reduce((a, b) => Math.min(a, b)) / (pad ? 1.3 : 1), high = Math.max(positive.reduce((a, b) => Math.max(a, b)) * (pad ? 1.3 : 1), low * 1.5);
    return { low, scale: { distr: 3, range: () => [low, high] }, ticks: { splits: () => logTicks(low, high), filter: (u, s) => s } };
  }
  const top = values.reduce((a, b) => Math.max(a, b), -Infinity), least = values.reduce((a, b) => Math.min(a, b), Infinity);
  const low = pad ? Math.min(0, least) : least, high = pad ? (top > 0 ? top * 1.08 : 1) : top > least ? top : least + Math.max(1, 0.1 * least);
  return { low: null, scale: { range: () => axis.unit === "ratio" && high <= 1.08 ? [low, Math.min(high, 1)] : [low, high] }, ticks: {} };
}

const labels = unit => (u, splits) => splits.map(v => v === null ? "" : brief(UNITS[unit])(Number(v.toPrecision(6))));

// Lines, steps, points: each series has its own x; y null is a gap.
function linePlot(box, plot) {
  const lines = plot.series.filter(l => l.x.length);
  if (!lines.length) return empty(box, plot.title, plot.sub || "nothing to show");
  const xs = lines.flatMap(l => l.x), ys = lines.flatMap(l => [...l.y, ...(l.range || []).flat()]).filter(v => v !== null);
  const x = scale(xs, plot.x, false), y = scale(ys, plot.y, true);
  const usable = lines.map(l => {
    const keep = l.x.map((v, i) => i).filter(i => !(plot.x.log && l.x[i] <= 0));
    return [keep.map(i => l.x[i]), keep.map(i => y.low && l.y[i] !== null ? Math.max(l.y[i], y.low) : l.y[i])];
  });
  const columns = usable.length === 1 ? usable[0] : uPlot.join(usable);
  const sub = [plot.sub, plot.x.log ? "logarithmic" : ""].filter(Boolean).join(" · ");
  draw(panel(box, plot.title, sub), {
    cursor: { points: { size: 6 } },
    scales: { x: { time: false, ...x.scale }, y: y.scale },
    x: { values: labels(plot.x.unit), label: plot.x.name, labelSize: 18, labelFont: FONT, size: plot.x.name ? 30 : 26, ...x.ticks },
    y: { values: labels(plot.y.unit), label: plot.y.name, labelSize: 18, labelFont: FONT, size: 60, ...y.ticks },
    series: [
      { label: plot.x.name || "x", value: value(TIP[plot.x.unit]) },
      ...lines.map((l, i) => ({
        label: l.label, stroke: hue(l, i), width: l.style === "points" ? 0 : 1.6, dash: l.style === "dashed" ? [5, 3] : undefined,
        fill: l.style === "filled" ? hue(l, i) + "44" : undefined, spanGaps: true, value: value(TIP[plot.y.unit]),
        paths: l.style === "steps" || l.style === "filled" ? uPlot.paths.stepped({ align: 1 }) : l.style === "points" ? () => null : undefined,
        points: { show: l.style === "points" || l.x.length < 40 && l.style !== "steps" && l.style !== "filled", size: l.style === "points" ? 6 : 5 },
      })),
    ],
    hooks: { draw: [u => lines.forEach((l, i) => errorBars(u, l, hue(l, i), v => y.low ? Math.max(v, y.low) : v))] },
  }, columns);
}

// A bar from the lower to the upper end of each point's range, if there is one.
function errorBars(u, line, stroke, atLeast) {
  const { ctx } = u, r = devicePixelRatio, cap = 3.5 * r;
  ctx.save();
  ctx.strokeStyle = stroke;
  ctx.lineWidth = 1.2 * r;
  ctx.beginPath();
  (line.range || []).forEach(([low, high], i) => {
    const x = u.valToPos(line.x[i], "x", true), [bottom, top] = [low, high].map(v => u.valToPos(atLeast(v), "y", true));
    if (bottom - top < 1) return;
    ctx.moveTo(x, bottom); ctx.lineTo(x, top);
    for (const end of [bottom, top]) { ctx.moveTo(x - cap, end); ctx.lineTo(x + cap, end); }
  });
  ctx.stroke();
  ctx.restore();
}

// Bars (y: a number for each category) or boxes (y: [min, p25, median, p75, max], or null).
function categoryPlot(box, plot) {
  const n = plot.categories.length, boxes = plot.kind === "boxes";
  const ys = plot.series.flatMap(l => l.y).flat().filter(v => v !== null);
  if (!n || !ys.length) return empty(box, plot.title, plot.sub || "nothing to show");
  const y = scale(ys, plot.y, true), many = plot.series.length;
  const width = () => 0.8 / many;
  draw(panel(box, plot.title, plot.sub), {
    cursor: { points: { show: false }, x: false, y: false },
    scales: { x: { time: false, range: () => [-0.6, n - 0.4] }, y: y.scale },
    x: {
      splits: () => plot.categories.map((_, i) => i), filter: (u, s) => s, grid: { show: false }, label: plot.x.name, labelSize: 18, labelFont: FONT, size: plot.x.name ? 30 : 26,
      values: (u, s) => {
        // Every category if they fit, else every second, third ...
        const room = u.bbox.width / devicePixelRatio / n, longest = Math.max(...plot.categories.map(c => c.length)) * 6.5 + 6;
        const step = Math.ceil(longest / room);
        return s.map(i => i % step ? "" : plot.categories[i]);
      },
    },
    y: { values: labels(plot.y.unit), label: plot.y.name, labelSize: 18, labelFont: FONT, size: 60, ...y.ticks },
    series: [
      { label: plot.x.name || "of", value: (u, v) => v === null || v === undefined ? "–" : plot.categories[Math.round(v)] },
      ...plot.series.map((l, i) => ({
        label: l.label, stroke: hue(l, i), paths: () => null, points: { show: false },
        value: (u, v, s, at) => {
          const all = at === null || at === undefined ? null : l.y[at];
          return all === null ? "–" : boxes ? all.map(TIP[plot.y.unit]).join(" / ") : TIP[plot.y.unit](all);
        },
      })),
    ],
    hooks: { draw: [u => {
      const { ctx } = u, r = devicePixelRatio, place = v => u.valToPos(y.low ? Math.max(v, y.low) : v, "y", true);
      const base = u.bbox.top + u.bbox.height;
      ctx.save();
      plot.series.forEach((l, k) => {
        ctx.strokeStyle = hue(l, k);
        ctx.lineWidth = 1.4 * r;
        l.y.forEach((v, i) => {
          if (v === null) return;
          const left = u.valToPos(i - 0.4 + k * width(), "x", true), right = u.valToPos(i - 0.4 + (k + 0.92) * width(), "x", true), w = right - left;
          ctx.fillStyle = hue(l, k) + (boxes ? "44" : "bb");
          if (!boxes) {
            // A bar too small to see still gets a visible height.
            if (v > 0) { const top = Math.min(place(v), base - r); ctx.fillRect(left, top, w, base - top); }
            return;
          }
          const [min, p25, median, p75, max] = v.map(place), middle = left + w / 2;
          ctx.fillRect(left, p75, w, p25 - p75);
          ctx.strokeRect(left, p75, w, p25 - p75);
          ctx.beginPath();
          ctx.moveTo(middle, p75); ctx.lineTo(middle, max); ctx.moveTo(middle, p25); ctx.lineTo(middle, min);
          for (const end of [min, max]) { ctx.moveTo(left + w / 4, end); ctx.lineTo(right - w / 4, end); }
          ctx.stroke();
          ctx.lineWidth = 2.6 * r;
          ctx.beginPath(); ctx.moveTo(left, median); ctx.lineTo(right, median); ctx.stroke();
          ctx.lineWidth = 1.4 * r;
        });
      });
      ctx.restore();
    }] },
  }, [plot.categories.map((_, i) => i), ...plot.series.map(l => boxes ? l.y.map(v => v === null ? null : v[2]) : l.y)]);
}

redraws.push(() => {
  for (const box of document.querySelectorAll("[data-plots]")) {
    clear(box);
    for (const plot of data.plots[Number(box.dataset.plots)]) (plot.kind === "lines" ? linePlot : categoryPlot)(box, plot);
  }
});
