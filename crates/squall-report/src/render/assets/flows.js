// Flows: a table sorted by its headings; a row shows the flow's plots.
if (data.received_flows) {
  const { columns, rows, plots } = data.received_flows;
  const FORMAT = { text: v => v, count, pps, bps, ns, octets: v => si(v, "B"), ratio };
  const body = $("flows").tBodies[0], box = $("flow-plots");
  let sorted = columns.findIndex(c => c.name === "Octets"), down = true, picked = 0, shown = 200;
  const value = (row, i) => row[i] === null ? (columns[i].unit === "text" ? "" : -1) : row[i];
  const order = () => rows.map((_, i) => i).sort((a, b) => {
    const [x, y] = [value(rows[a], sorted), value(rows[b], sorted)];
    return (x < y ? -1 : x > y ? 1 : a - b) * (down && x !== y ? -1 : 1);
  });
  const plot = () => {
    clear(box);
    const own = plots[picked] || [];
    for (const one of own) linePlot(box, one);
    if (!own.length) empty(box, rows[picked][0], "no histograms in this page; see the JSON report");
  };
  const fill = () => {
    const list = order().slice(0, shown);
    body.replaceChildren(...list.map(i => {
      const cells = columns.map((c, k) => {
        const cell = el(k ? "td" : "th", {}, rows[i][k] === null ? "–" : FORMAT[c.unit](rows[i][k]));
        if (c.unit === "text") cell.className = "name";
        if (c.bad && rows[i][k] > 0) cell.classList.add("bad");
        return cell;
      });
      const row = el("tr", {}, ...cells);
      row.onclick = () => { picked = i; fill(); plot(); };
      if (i === picked) row.className = "picked";
      return row;
    }));
    $("flows-more").hidden = shown >= rows.length;
    $("flows-more").textContent = `${count(Math.max(rows.length - shown, 0))} more`;
  };
  const heads = columns.map((c, i) => {
    const head = el("th", {}, c.name);
    if (c.unit === "text") head.className = "name";
    head.onclick = () => { down = sorted === i ? !down : c.unit !== "text"; sorted = i; fill(); };
    return head;
  });
  $("flows").tHead.append(el("tr", {}, ...heads));
  $("flows-more").onclick = () => { shown += 1000; fill(); };
  fill();
  redraws.push(plot);
}
