// Makes the stream table and the plots of a run's report (html.rs documents `data`), with what page.js has.

// --- stream table -------------------------------------------------------------------------------------------------

// `at` is the place in a row of data.streams.
const COLUMNS = [
  { key: "name", at: 0, head: "Stream", group: "", text: true },
  { key: "port", at: 1, head: "Port", group: "", text: true },
  { key: "tx", at: 3, head: "Frames", group: "Sent", show: count, edge: true },
  { key: "asked", at: 4, head: "Asked", group: "Sent", show: pps, none: "max" },
  { key: "achieved", at: 5, head: "Achieved", group: "Sent", show: pps },
  { key: "error", at: 6, head: "Diff.", title: "Achieved rate against requested rate", group: "Sent", show: deviation },
  { key: "unsent", at: 7, head: "Not sent", group: "Sent", show: count, fault: true, why: 8 },
  { key: "rx", at: 9, head: "Frames", group: "Received", show: count, edge: true },
  { key: "lost", at: 10, head: "Lost", group: "Received", show: count, fault: true },
  { key: "loss", at: 11, head: "Loss ratio", group: "Received", show: ratio, fault: true },
  { key: "dup", at: 12, head: "Dup.", title: "Duplicates (RFC 5560)", group: "Received", show: count, fault: true },
  { key: "reord", at: 13, head: "Reord.", title: "Reordered (RFC 4737)", group: "Received", show: count, fault: true },
  { key: "min", at: 14, head: "min", group: "One-way delay", show: ns, edge: true },
  { key: "mean", at: 15, head: "mean", group: "One-way delay", show: ns },
  { key: "p50", at: 16, head: "p50", group: "One-way delay", show: ns },
  { key: "p99", at: 17, head: "p99", group: "One-way delay", show: ns },
  { key: "p999", at: 18, head: "p99.9", group: "One-way delay", show: ns },
  { key: "max", at: 19, head: "max", group: "One-way delay", show: ns },
  { key: "ipdv50", at: 20, head: "p50", group: "IPDV", show: ns, edge: true },
  { key: "ipdv99", at: 21, head: "p99", group: "IPDV", show: ns },
  { key: "late50", at: 22, head: "p50", group: "Departure error", show: ns, edge: true },
  { key: "late99", at: 23, head: "p99", group: "Departure error", show: ns },
  { key: "latemax", at: 24, head: "max", group: "Departure error", show: ns },
];
// For streams of other senders only the arrival is known.
const SHOWN = COLUMNS.filter(c => data.sends || !(c.key === "port" || c.group === "Sent" || c.group === "Departure error"));
const PLACE = 25;
const PAGE = 50;
const faults = row => COLUMNS.some(c => c.fault && row[c.at] > 0);

let order = data.streams.map((_, i) => i);
let sorted = null;      // { column, down }
let shown = PAGE;
let picked = -1;        // index into data.streams; -1 is all of them

function tableHead() {
  const groups = el("tr"), heads = el("tr");
  for (const [i, c] of SHOWN.entries()) {
    if (i === 0 || SHOWN[i - 1].group !== c.group) {
      const span = SHOWN.filter(d => d.group === c.group).length;
      const th = el("th", { colSpan: c.group ? span : 1, textContent: c.group });
      th.className = c.group ? "edge" : "name";
      groups.append(th);
    } else if (!c.group) {
      groups.append(el("th"));
    }
    const button = el("button", { type: "button", textContent: c.head, title: c.title || "" });
    button.onclick = () => {
      sorted = { column: c, down: sorted && sorted.column === c ? !sorted.down : !c.text };
      for (const th of heads.children) th.removeAttribute("aria-sort");
      button.parentElement.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      arrange();
    };
    heads.append(el("th", { className: (c.text ? "name" : "") + (c.edge ? " edge" : "") }, button));
  }
  $("streams").tHead.replaceChildren(groups, heads);
}

function arrange() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const only = $("faulty").checked;
  order = [];
  data.streams.forEach((row, i) => {
    const text = (row[0] + " " + row[1] + " " + (row[2] || "")).toLowerCase();
    if (words.every(w => text.includes(w)) && (!only || faults(row))) order.push(i);
  });
  if (sorted) {
    const { column: { at, text }, down } = sorted;
    const sign = down ? -1 : 1;
    order.sort((i, j) => {
      const a = data.streams[i][at], b = data.streams[j][at];
      if (a === null || b === null) return (a === null) - (b === null) || i - j;   // unknown goes last
      return sign * (text ? a.localeCompare(b, "en", { numeric: true }) : a - b) || i - j;
    });
  }
  shown = PAGE;
  rows();
}

function rows() {
  $("streams").tBodies[0].replaceChildren(...order.slice(0, shown).map(i => {
    const row = data.streams[i];
    const tr = el("tr", { className: (row[PLACE] !== null ? "can" : "") + (i === picked ? " picked" : "") });
    for (const c of SHOWN) {
      const value = row[c.at];
      const cell = el(c.key === "name" ? "th" : "td", { textContent: value === null ? c.none || "–" : c.text ? value : c.show(value) });
      if (c.key === "name") { cell.scope = "row"; cell.title = row[2] ? value + " (group " + row[2] + ")" : value; }
      if (c.why && row[c.why]) cell.title = row[c.why];
      cell.className = (c.text ? "name" : "") + (c.edge ? " edge" : "")
        + (value === null ? " none" : c.fault ? (value > 0 ? " bad" : " none") : "");
      tr.append(cell);
    }
    if (row[PLACE] !== null) tr.onclick = () => pick(i, true);
    return tr;
  }));
  const n = data.streams.length;
  $("streams-count").textContent =
    order.length === n ? (n > shown ? `${count(shown)} of ${count(n)}` : count(n)) : `${count(Math.min(shown, order.length))} of ${count(order.length)} that match, ${count(n)} in all`;
  $("more").hidden = order.length <= shown;
  $("more").textContent = `Show ${count(Math.min(200, order.length - shown))} more`;
}

// --- plots --------------------------------------------------------------------------------------------------------

// lines: [{ label, values, color, dash }]
function timePlot(box, title, sub, show, lines, { jumps = false, whole = false } = {}) {
  const seen = lines.flatMap(l => l.values).filter(v => v !== null);
  if (!seen.length) return empty(box, title, data.t.length ? "not measured" : "the run was too short for a series");
  const top = seen.reduce((a, b) => Math.max(a, b), 0);
  const least = seen.filter(v => v > 0).reduce((a, b) => Math.min(a, b), Infinity);
  const log = jumps && top / least > 50;   // one preemption must not flatten the rest
  const columns = [data.t, ...lines.map(l => (log ? l.values.map(v => v === null ? null : Math.max(v, least)) : l.values))];
  draw(panel(box, title, sub + (log ? " · logarithmic" : "")), {
    cursor: { sync: { key: "t" }, points: { size: 6 } },
    scales: {
      x: { time: false },
      y: log ? { distr: 3, range: () => [least / 1.3, top * 1.3] } : { range: () => [0, top > 0 ? top * 1.1 : 1] },
    },
    x: { values: (u, splits) => splits.map(v => v + " s") },
    y: { values: (u, splits) => splits.map(v => v === null || (whole && !Number.isInteger(v)) ? "" : brief(show)(v)), ...(log ? { splits: () => logTicks(least / 1.3, top * 1.3), filter: (u, s) => s } : {}) },
    series: [
      { label: "t", value: value(v => v + " s") },
      ...lines.map(l => ({
        label: l.label, stroke: l.color, width: 1.6, dash: l.dash, value: value(show),
        points: { show: data.t.length < 3 },
      })),
    ],
  }, columns);
}

// Spreads bins [edge, width, count, ...] over equal steps of the logarithm: HDR bins double their width each octave,
// and unchanged they would show steps that the delay does not have.
function spread(bins, low, step, n) {
  const shares = new Float64Array(n);
  const place = v => Math.log(Math.max(v, 0.5) / low) / step;
  let total = 0;
  for (let i = 0; i < bins.length; i += 3) {
    const from = place(bins[i]), to = Math.max(place(bins[i] + bins[i + 1]), from + 1e-9), c = bins[i + 2];
    total += c;
    for (let k = Math.max(0, Math.floor(from)); k < Math.min(n, Math.ceil(to)); k++)
      shares[k] += c * (Math.min(k + 1, to) - Math.max(k, from)) / (to - from);
  }
  return Array.from(shares, s => s / total * 100);
}

// layers: [{ label, hist, color }]
function histogramPlot(box, title, layers) {
  layers = layers.filter(l => l.hist);
  if (!layers.length) return empty(box, title, "not measured");
  const edges = layers.flatMap(({ hist: { bins } }) => [bins[0], bins[bins.length - 3] + bins[bins.length - 2]]);
  let low = Math.max(0.5, Math.min(...edges)), high = Math.max(...edges, low * 1.5);
  const n = Math.round(Math.min(110, Math.max(24, Math.log10(high / low) * 45)));
  const step = Math.log(high / low) / n;
  const x = Array.from({ length: n + 1 }, (_, i) => low * Math.exp(i * step));
  const logy = $("logy").checked;
  let columns = layers.map(l => spread(l.hist.bins, low, step, n));
  const top = Math.max(...columns.flat()), floor = Math.min(...columns.flat().filter(v => v > 0)) / 2;
  columns = columns.map(c => { const s = logy ? c.map(v => Math.max(v, floor)) : c; return [...s, s[s.length - 1]]; });
  const [p50, p99, p999, max] = layers[0].hist.stats;
  const sub = layers.length > 1 ? layers.map(l => `${l.label}: p50 ${ns(l.hist.stats[0])}, p99 ${ns(l.hist.stats[1])}`).join(" · ")
    : `p50 ${ns(p50)} · p99 ${ns(p99)} · p99.9 ${ns(p999)} · max ${ns(max)} · ${count(layers[0].hist.count)} samples`;
  const marks = layers.length > 1 ? [] : [["p50", p50], ["p99", p99]];
  draw(panel(box, title, sub), {
    cursor: { points: { show: false } },
    scales: {
      x: { time: false, distr: 3, range: () => [low, high] },
      y: logy ? { distr: 3, range: () => [floor, top * 4] } : { range: () => [0, top * 1.12] },
    },
    x: { splits: () => logTicks(low, high), filter: (u, s) => s, values: (u, s) => s.map(brief(v => ns(Number(v.toPrecision(6))))), space: 50 },
    y: { values: (u, s) => s.map(v => v === null ? "" : Number(v.toPrecision(3)) + " %"), ...(logy ? { splits: () => logTicks(floor, top * 4), filter: (u, s) => s } : {}) },
    series: [
      { label: "from", value: value(ns) },
      ...layers.map((l, i) => ({
        label: l.label, stroke: l.color, width: 1.2, fill: l.color + (layers.length > 1 ? "22" : "44"),
        paths: uPlot.paths.stepped({ align: 1 }), points: { show: false },
        value: value(v => v <= floor && logy ? "0 %" : v.toFixed(v < 0.1 ? 4 : 2) + " %"),
      })),
    ],
    hooks: { draw: [u => {
      const { ctx, bbox } = u, ratio = devicePixelRatio;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = style("--muted");
      ctx.font = `${10 * ratio}px system-ui, sans-serif`;
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      for (const [label, v] of marks) {
        if (v < low || v > high) continue;
        const at = u.valToPos(v, "x", true);
        ctx.beginPath(); ctx.moveTo(at, bbox.top); ctx.lineTo(at, bbox.top + bbox.height); ctx.stroke();
        const right = at > bbox.left + bbox.width - 30 * ratio;
        ctx.textAlign = right ? "right" : "left";
        ctx.fillText(label, at + (right ? -4 : 4) * ratio, bbox.top + 10 * ratio);
      }
      ctx.restore();
    }] },
  }, [x, ...columns]);
}

const peak = values => values.reduce((a, b) => Math.max(a, b ?? 0), 0);

function portPlots() {
  const box = $("port-plots");
  const lines = (tx, rx) => data.ports.flatMap((p, i) => [
    ...(data.sends ? [{ label: p.name + " tx", values: p[tx], color: color(i) }] : []),
    { label: p.name + " rx", values: p[rx], color: color(i), dash: [5, 3] },
  ]);
  const busy = all => { const some = all.filter(l => peak(l.values) > 0); return some.length ? some : all.slice(0, 2); };
  timePlot(box, "Packet rate", data.sends ? "frames/s, as sent and as received" : "frames/s", pps, busy(lines("tx_pps", "rx_pps")));
  timePlot(box, "Bit rate", "layer 1: with preamble and gap", bps, busy(lines("tx_bps", "rx_bps")));
  if (data.capture) {
    const { written_pps, lost } = data.capture;
    timePlot(box, "Written", "packets/s", pps, [{ label: "written", values: written_pps, color: color(2) }]);
    timePlot(box, "Lost so far", peak(lost) ? "in the kernel and in the process" : "none lost", v => si(v, ""),
      [{ label: "lost", values: lost, color: color(5) }], { whole: peak(lost) < 10 });
  }
  const gaps = data.ports.map((p, i) => ({ label: p.name, hist: p.gap, color: color(i) }));
  if (gaps.some(g => g.hist)) histogramPlot(box, "Inter-arrival gap at the port", gaps);
}

function flowsPlots() {
  const box = $("flows-plots"), sides = data.flows;
  const both = sides.length > 1;
  const lines = (...keys) => sides.flatMap((side, i) => keys.map(([key, label], k) => ({
    label: (both ? side.side + " " : "") + label, values: side[key], color: color(k * 2 + i), dash: i ? [5, 3] : undefined,
  })));
  const plain = v => si(v, "");
  timePlot(box, "Connections/s", "begun and completed", plain, lines(["attempted", "begun"], ["completed", "completed"]));
  timePlot(box, "Open flows", "at the end of each interval", plain, lines(["active", "open"]), { whole: true });
  timePlot(box, "Goodput", "application data received", bps, lines(["goodput", "received"]));
  timePlot(box, "Failed and not begun so far", "", plain, lines(["failed", "failed"], ["not_begun", "not begun"]), { whole: true });
  timePlot(box, "Set-up and answer times", "p99 of each interval", ns, lines(["setup_p99", "set-up"], ["transaction_p99", "answer"]), { jumps: true });
}

function streamPlots() {
  const box = $("stream-plots");
  const all = picked < 0;
  const { series, hist } = all ? data.all : data.details[data.streams[picked][PLACE]];
  const many = all && data.streams.length > 1;
  timePlot(box, "Rate", many ? "sum of the streams; received: of measured streams" : "frames/s", pps,
    [...(data.sends ? [{ label: "sent", values: series.tx_pps, color: color(0) }] : []),
      { label: "received", values: series.rx_pps, color: color(1), dash: data.sends ? [5, 3] : [] }]);
  timePlot(box, "Lost so far", peak(series.lost) ? "gaps in the sequence so far" : "none lost", v => si(v, ""),
    [{ label: "lost", values: series.lost, color: color(5) }], { whole: peak(series.lost) < 10 });
  timePlot(box, "One-way delay over time", many ? "p50 of the median stream, p99 of the worst" : "of the frames of each interval", ns,
    [{ label: "p50", values: series.p50, color: color(2) }, { label: "p99", values: series.p99, color: color(3) }], { jumps: true });
  histogramPlot(box, "One-way delay", [{ label: "frames", hist: hist.latency, color: color(2) }]);
  if (data.sends) {
    timePlot(box, "Departure error over time", many ? "p99 of the worst stream" : "p99 of each interval", ns,
      [{ label: "p99", values: series.late, color: color(1) }], { jumps: true });
    histogramPlot(box, "Departure error (actual minus due)", [{ label: "frames", hist: hist.late, color: color(1) }]);
  }
  histogramPlot(box, "Inter-arrival gap" + (many ? " within each stream" : ""), [{ label: "gaps", hist: hist.gap, color: color(0) }]);
  histogramPlot(box, "Delay variation (IPDV)", [{ label: "pairs", hist: hist.ipdv, color: color(3) }]);
}

function redraw() {
  clear($("port-plots"));
  clear($("stream-plots"));
  clear($("flows-plots"));
  if (data.flows) flowsPlots();
  if (data.ports.length) portPlots();
  if (data.streams.length) streamPlots();
}

function pick(i, scroll) {
  picked = i;
  $("pick").value = String(i);
  rows();
  redraw();
  if (scroll) $("stream-plots-section").scrollIntoView({ behavior: "smooth" });
}

// --- start --------------------------------------------------------------------------------------------------------

$("over-time").hidden = !data.ports.length;
$("flows-section").hidden = !data.flows;
$("stream-plots-section").hidden = !data.streams.length;
if (data.merged > 1) $("merged").textContent = `each point spans ${data.merged} samples`;
if (data.streams.length) {
  $("streams-section").hidden = false;
  tableHead();
  const kept = data.streams.map((row, i) => [row, i]).filter(([row]) => row[PLACE] !== null);
  picked = data.streams.length > 1 || !kept.length ? -1 : 0;
  if (picked < 0) $("pick").append(el("option", { value: "-1", textContent: `all ${count(data.streams.length)} streams` }));
  $("pick").append(...kept.map(([row, i]) => el("option", { value: String(i), textContent: row[0] })));
  if (kept.length < data.streams.length)
    $("kept").textContent = `plots of ${count(kept.length)} streams are in this file: those with the most lost, the most unsent and the slowest frames; the JSON report has all`;
  $("pick").value = String(picked);
  $("pick").onchange = () => pick(Number($("pick").value));
  $("logy").onchange = redraw;
  $("filter").oninput = arrange;
  $("faulty").onchange = arrange;
  $("more").onclick = () => { shown += 200; rows(); };
  arrange();
}
redraws.push(redraw);
