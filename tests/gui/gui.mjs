// Actions of a user in the web page, in a browser, against a daemon in a lab (see
// tests/interop/gui.py):
//   SQUALL_TOKEN=... node gui.mjs https://127.0.0.1:PORT /usr/bin/chromium [--shots FOLDER] [--only WORDS] [--first-visit]
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../ui/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const [url, executablePath, ...rest] = process.argv.slice(2);
const option = (name) => (rest.includes(name) ? rest[rest.indexOf(name) + 1] : null);
const shots = option("--shots");
/** Run only the steps whose names match, after the login. */
const only = option("--only");
const token = process.env.SQUALL_TOKEN;
/** Another daemon that this daemon's page may use. */
const [other, otherToken] = [process.env.SQUALL_OTHER, process.env.SQUALL_OTHER_TOKEN];
const TIMEOUT_MS = 60_000;

/** Counters of the interface itself. */
function counted(name) {
  const [link] = JSON.parse(execFileSync("ip", ["-s", "-j", "link", "show", name], { encoding: "utf8" }));
  return { tx: link.stats64.tx.packets, rx: link.stats64.rx.packets };
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `what` holds. */
async function until(what, why, timeout = TIMEOUT_MS) {
  const end = Date.now() + timeout;
  for (;;) {
    const got = await what();
    if (got) return got;
    assert.ok(Date.now() < end, why);
    await sleep(150);
  }
}

const errors = [];

async function open(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ignoreHTTPSErrors: true, acceptDownloads: true, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  page.on("pageerror", (error) => errors.push(`${page.url()}: ${error.message}`));
  page.on("console", (message) => /Content Security Policy|Refused to/.test(message.text()) && errors.push(message.text()));
  page.on("request", (request) => !/^(data|blob):/.test(request.url()) && ![url, other, other?.replace("https", "wss")].some((known) => known && request.url().startsWith(known)) && errors.push(`asked elsewhere: ${request.url()}`));
  return page;
}

async function login(page) {
  await page.goto(`${url}/#/ports`);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("Live", { exact: true }).waitFor();
}

const api = "/squall/v1";

/** The daemon's answer to a request from the page's own browser, which includes the cookie. */
const ask = (page, path, method = "GET", body = undefined) =>
  page.evaluate(
    async ([path, method, body]) => {
      const answer = await fetch(path, { method, body: body && JSON.stringify(body), headers: body ? { "content-type": "application/json" } : {} });
      const text = await answer.text();
      if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
      return answer.headers.get("content-type")?.includes("json") ? JSON.parse(text) : text;
    },
    [api + path, method, body],
  );

/** A capture of UDP frames at intervals of a millisecond. */
function pcap(frames) {
  const headers = "020000000002020000000001" + "0800" + "450000240000000040111cb6c6120001c6130001" + "1000000900100000";
  const frame = Buffer.from((headers + "6162636465666768").padEnd(120, "0"), "hex");
  const head = Buffer.from("d4c3b2a1020004000000000000000000ffff000001000000", "hex");
  const records = Array.from({ length: frames }, (_, i) => {
    const about = Buffer.alloc(16);
    about.writeUInt32LE(1_700_000_000, 0);
    about.writeUInt32LE(i * 1000, 4);
    about.writeUInt32LE(frame.length, 8);
    about.writeUInt32LE(frame.length, 12);
    return Buffer.concat([about, frame]);
  });
  return Buffer.concat([head, ...records]);
}

/** A figure of a `dl.facts`, by its name. */
const fact = async (scope, name) => {
  const of = scope.locator("dl.facts > div", { has: scope.page().getByText(name, { exact: true }) });
  return (await of.locator("dd").textContent())?.trim();
};

/** The figure shown with a line of a chart. */
async function figure(page, label) {
  const text = await page.locator("figure button", { has: page.getByText(label, { exact: true }) }).locator("b").first().getAttribute("data-value");
  return Number(text);
}

const steps = {
  async "a wrong token is refused where it was typed"(page) {
    await page.goto(`${url}/#/streams`);
    await page.getByLabel("Token").fill("not this one");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.locator("dialog .problem").waitFor();
    assert.equal(await page.locator("main h1").count(), 0, "nothing is shown before");
    await login(page);
  },

  async "a refusal of what was asked before the login, and comes after it, refuses nobody"() {
    const late = await open(browser);
    let answer;
    const held = new Promise((resolve) => (answer = resolve));
    const delayed = new Set();
    await late.route(/\/squall\/v1\/(info|headers)$/, async (route) => {
      const asked = route.request().url();
      if (delayed.has(asked)) return route.continue();
      delayed.add(asked);
      const response = await route.fetch();
      await held;
      await route.fulfill({ response });
    });
    await late.goto(`${url}/#/streams`);
    await login(late);
    assert.equal(delayed.size, 2, "both were asked");
    answer();
    await sleep(500);
    await late.getByRole("row", { name: /veth-a/ }).waitFor({ timeout: 5000 });
    await late.getByText("Live", { exact: true }).waitFor({ timeout: 5000 });
    await late.context().close();
  },

  async "the ports of the lab are there, and free"(page) {
    await page.goto(`${url}/#/ports`);
    for (const name of ["veth-a", "veth-b"]) await page.getByRole("row", { name: new RegExp(name) }).getByText("free").waitFor();
  },

  async "a run over nodes: the inventory is chosen, each node is shown live, lost ones are named"(page) {
    await page.goto(`${url}/#/streams`);
    await page.getByLabel("Run on").selectOption("lab");
    assert.equal(await page.getByLabel("Place of port B").inputValue(), "two/eth1");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.waitForURL(/#\/run\?id=/);
    const row = page.getByRole("table", { name: "Nodes" }).getByRole("row", { name: /^one/ });
    const sent = async () => Number((await row.locator('[data-label="Sent"]').textContent()).replace(/\D/g, ""));
    const first = await sent();
    await until(async () => (await sent()) > first, "the row is live");
    assert.match(await row.locator('[data-label="Clock bound"]').textContent(), /120/);
    assert.match(await page.getByTestId("lost-nodes").textContent(), /two \(silent for 2 s\)/);
    assert.equal(await page.getByRole("button", { name: "Pause" }).count(), 0);
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
    const { id } = (await ask(page, "/runs?limit=1")).runs[0];
    const report = await ask(page, `/runs/${id}/report`);
    const all = report.ports.reduce((sum, port) => sum + port.tx.packets, 0);
    await until(async () => Number((await page.getByTestId("tx-packets").textContent()).replace(/\D/g, "")) === all, "the figures are those of the report");
    await page.goto(`${url}/#/streams`);
    await page.getByLabel("Run on").selectOption("");
  },

  async "a stream is built: fields, octets, a wrong value at its place"(page) {
    await page.goto(`${url}/#/streams`);
    await page.getByLabel("Address of port A").fill("veth-a");
    await page.getByLabel("Address of port A").press("Tab");
    await page.getByLabel("Address of port B").fill("veth-b");
    await page.getByLabel("Address of port B").press("Tab");
    // Remove the streams of the example.
    const list = page.getByRole("listbox", { name: "Streams" });
    for (let left = await list.getByRole("option").count(); left > 0; left--) {
      await page.getByRole("button", { name: "Remove the stream" }).click();
      await until(async () => (await list.getByRole("option").count()) === left - 1, "a stream is removed");
    }
    await page.getByText("No stream yet").waitFor();
    await page.getByRole("button", { name: "New stream" }).first().click();
    // The layer stack: a VLAN tag is inserted and removed.
    const stack = page.getByRole("listbox", { name: "Headers" });
    await stack.getByRole("option").nth(2).waitFor();
    await page.getByLabel("Add a header after eth").selectOption("vlan");
    await stack.getByRole("option", { name: /vlan/ }).click();
    await page.getByRole("button", { name: "Remove vlan" }).click();
    await until(async () => (await stack.getByRole("option", { name: /vlan/ }).count()) === 0, "the tag is gone");
    // From field to octets: the TTL is the 23rd octet.
    await stack.getByRole("option", { name: /ipv4/ }).click();
    await page.locator("#f-ttl").fill("17");
    await page.locator("#f-ttl").press("Enter");
    await until(async () => (await page.locator('[data-octet="22"]').textContent()) === "11", "the TTL is in the octets");
    await until(async () => (await page.locator('[data-octet="22"]').getAttribute("aria-pressed")) === "true", "and is marked there");
    // From octets to field: the first octet of the destination address.
    await page.locator('[data-octet="30"]').click();
    await page.locator(".field.chosen #f-dst").waitFor();
    // An out-of-range value is reported at its field, and changes nothing.
    await page.locator("#f-ttl").fill("9999");
    await page.locator("#f-ttl").press("Enter");
    await page.locator("#h-ttl.problem").waitFor();
    assert.equal(await page.locator('[data-octet="22"]').textContent(), "11");
    await page.locator("#f-ttl").fill("18");
    await page.locator("#f-ttl").press("Enter");
    await until(async () => (await page.locator('[data-octet="22"]').textContent()) === "12", "the right one is taken");
    // A varying field.
    await page.getByRole("tab", { name: /Variations/ }).click();
    await page.getByRole("button", { name: "Vary a field" }).click();
    await page.locator(".preview tbody tr").nth(5).waitFor();
    // The field is highlighted among the octets, with a single request: the page is idle without
    // input.
    await page.getByRole("tab", { name: /Packet/ }).click();
    await page.getByText("changes from frame to frame").waitFor();
    const asked = [];
    page.on("request", (request) => /packets/.test(request.url()) && asked.push(request.url()));
    await sleep(600);
    assert.deepEqual(asked, []);
    await page.getByRole("tab", { name: /Rate/ }).click();
    // A problem of the profile is shown at its field, by its path.
    await page.getByLabel("Rate", { exact: true }).fill("nonsense");
    await page.getByLabel("Rate", { exact: true }).press("Tab");
    await page.locator(".field .problem").first().waitFor();
    await page.getByLabel("Rate", { exact: true }).fill("1000");
    await page.getByLabel("Rate", { exact: true }).press("Tab");
    await page.getByText("ready", { exact: true }).waitFor();
  },

  async "it is exported as TOML and Python, and is there after a reload"(page) {
    await page.getByRole("button", { name: "Export" }).click();
    await until(async () => (await page.locator("dialog pre").textContent())?.includes("[[stream]]"), "TOML");
    await page.getByRole("tab", { name: "Python" }).click();
    await until(async () => (await page.locator("dialog pre").textContent())?.includes("import squall"), "Python");
    await page.getByRole("button", { name: "Close" }).click();
    await page.reload();
    await page.getByRole("tab", { name: /Rate/, selected: true }).waitFor();
    assert.equal(await page.getByLabel("Address of port B").inputValue(), "veth-b");
  },

  async "it runs: the chart's rate is what the interface counts"(page) {
    const before = counted("veth-a");
    await page.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/#\/run\?id=/);
    await until(async () => Math.abs((await figure(page, "A sent")) - 1000) < 100, "about 1000 frames a second on the chart", 60_000);
    // By the run's own time, without `starved_s`, the time that a busy or stopped machine takes.
    const id = new URLSearchParams(page.url().split("?")[1]).get("id");
    await until(async () => {
      const { report } = await ask(page, `/runs/${id}/stats`);
      // The report may be up to a second old.
      const after = counted("veth-a").tx - before.tx;
      const sent = report.streams[0].tx_packets;
      const [least, most] = [report.duration_s - report.sources[0].starved_s, report.duration_s].map((seconds) => seconds * 1000);
      return sent <= after && after - sent < 3000 && sent > 1000 && sent > 0.85 * least && sent < 1.15 * most;
    }, "the interface counts 1000 a second", 60_000);
    const total = async () => Number((await page.getByTestId("tx-packets").textContent()).replace(/\D/g, ""));
    // The page shows the last sample, up to a second old.
    await until(async () => (await total()) > 1000, "the page shows more than 1000 frames", 60_000);
    const shown = await total();
    const sent = counted("veth-a").tx - before.tx;
    assert.ok(shown > 1000 && shown <= sent + 5, `the page shows ${shown}, the interface ${sent}`);
    await until(async () => (await page.getByText(/^p99$/).count()) > 0, "percentiles of the delay");
  },

  async "its rate is changed while it goes on"(page) {
    const slider = page.getByLabel("Rate of all streams");
    await slider.focus();
    for (let i = 0; i < 2; i++) await slider.press("PageDown");
    const percent = Number(await slider.inputValue());
    assert.ok(percent > 40 && percent < 80, `${percent} %`);
    await until(async () => Math.abs((await figure(page, "A sent")) - percent * 10) < percent, `about ${percent * 10} frames a second`);
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("button", { name: "Resume" }).waitFor();
    await until(async () => (await figure(page, "A sent")) === 0, "nothing while it pauses");
    const held = counted("veth-a").tx;
    await sleep(500);
    assert.ok(counted("veth-a").tx - held < 5);
    await page.getByRole("button", { name: "Resume" }).click();
    await until(async () => (await figure(page, "A sent")) > percent * 5, "it goes on");
  },

  async "the port is held by the run, and free when it was stopped"(page) {
    await page.goto(`${url}/#/ports`);
    await page.getByRole("row", { name: /veth-a/ }).getByRole("button", { name: /Release/ }).waitFor();
    await page.goto(`${url}/#/run`);
    await page.getByRole("button", { name: "Stop" }).click();
    await page.goto(`${url}/#/ports`);
    await page.getByRole("row", { name: /veth-a/ }).getByText("free").waitFor();
  },

  async "what is sent is captured, decoded and downloaded"(page) {
    await page.goto(`${url}/#/streams`);
    await page.getByRole("button", { name: "Remove port B" }).click();
    await page.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/#\/run\?id=/);
    await page.goto(`${url}/#/capture`);
    await page.getByLabel("Port", { exact: true }).fill("veth-b");
    await page.getByRole("button", { name: "Start" }).click();
    await page.getByRole("button", { name: "Stop" }).waitFor();
    await sleep(1500);
    await page.getByRole("button", { name: "Stop" }).click();
    const table = page.getByRole("table", { name: "Packets" });
    await table.getByText("UDP").first().waitFor();
    await table.getByText("UDP").first().click();
    await page.locator(".tree").getByText("Time to live").click();
    await until(async () => (await page.locator('.detail [data-octet="22"]').getAttribute("aria-pressed")) === "true", "the octet of the TTL");
    assert.equal(await page.locator('.detail [data-octet="22"]').textContent(), "12");
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: /Download/ }).first().click()]);
    // pcapng's first block.
    assert.equal(readFileSync(await download.path()).subarray(0, 4).toString("hex"), "0a0d0d0a");
    await page.goto(`${url}/#/run`);
    await page.getByRole("button", { name: "Stop" }).click();
  },

  async "the report of the run is there, and is downloaded"(page) {
    await page.goto(`${url}/#/runs?kind=streams`);
    await page.locator(".list tbody tr").nth(1).waitFor();
    await page.locator(".list tbody button").nth(0).click();
    await page.getByRole("heading", { name: "Ports", exact: true }).waitFor();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByTestId("report-html").click()]);
    const html = readFileSync(await download.path(), "utf8");
    assert.ok(html.includes("<html") && html.includes("stream 1"), "an HTML report of the stream");
    await page.getByRole("button", { name: "Compare", exact: true }).first().click();
    await page.getByRole("heading", { name: /Compared with/ }).waitFor();
  },

  async "rules are solved, and those that are not say why"(page) {
    await page.goto(`${url}/#/attacks`);
    await page.getByLabel("Or paste rules").fill(
      'alert tcp any any -> any 80 (msg:"a needle"; content:"needle"; sid:1001;)\nalert tcp any any -> any 80 (msg:"too long"; content:"needle"; dsize:2; sid:1002;)',
    );
    await page.getByRole("button", { name: "Solve" }).click();
    await page.getByRole("row", { name: /1001.*solved/ }).waitFor();
    await page.getByRole("row", { name: /1002.*not solved/ }).waitFor();
  },

  async "attacks are run, and what was alerted on is scored"(page) {
    await page.goto(`${url}/#/attacks`);
    await page.locator('input[type=file][accept^=".rules"]').setInputFiles({
      name: "two.rules",
      mimeType: "text/plain",
      buffer: Buffer.from(
        'alert udp any any -> any 99 (msg:"one"; content:"first"; sid:1;)\nalert udp any any -> any 99 (msg:"two"; content:"second"; sid:2;)\n',
      ),
    });
    await until(async () => (await page.getByLabel("Rules file").inputValue()) === "two.rules", "the file is chosen");
    await page.getByRole("button", { name: "Solve", exact: true }).click();
    await page.getByRole("button", { name: "Add attacks to the mix" }).click();
    await page.getByLabel("Near misses").selectOption("also");
    await page.getByText("ready", { exact: true }).waitFor();
    const before = counted("veth-a").tx;
    await page.getByRole("button", { name: "Start only attacks" }).click();
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
    // Two attacks and their near misses, with one datagram each.
    const sent = () => fact(page.getByLabel("The run", { exact: true }), "Sent");
    await until(async () => (await sent()) === "4", "all four are sent");
    assert.ok(counted("veth-a").tx - before >= 4);
    await page.goto(`${url}/#/attacks?tab=run`);
    await page.getByRole("button", { name: "Remove the attack" }).click();
    await page.getByText("No attack yet").waitFor();
    // An engine that raised an alert for the first attack, and for the near miss of the second.
    await page.goto(`${url}/#/attacks?tab=score`);
    const chosen = () => page.getByLabel("Labels", { exact: true }).inputValue();
    await until(async () => /^labels-.*csv$/.test(await chosen()), "the labels of that run are chosen");
    const text = await ask(page, `/files/${await chosen()}`);
    const labels = text.trim().split("\n").map((line) => line.split(","));
    const columns = labels.shift();
    const of = (kind, sid) => {
      const found = labels.find((label) => label[columns.indexOf("kind")] === kind && label[columns.indexOf("sid")] === sid);
      const row = Object.fromEntries(columns.map((name, i) => [name, found[i]]));
      const at = new Date(Number(row.begin) * 1000).toISOString().replace("Z", "000+0000");
      return JSON.stringify({
        timestamp: at,
        event_type: "alert",
        src_ip: row.source,
        src_port: +row.source_port,
        dest_ip: row.destination,
        dest_port: +row.destination_port,
        proto: "UDP",
        alert: { gid: 1, signature_id: +sid, rev: 0 },
      });
    };
    const alerts = Buffer.from(`${of("attack", "1")}\n${of("near_miss", "2")}\n`);
    await page.locator('input[type=file][accept^=".json"]').setInputFiles({ name: "eve.json", mimeType: "text/plain", buffer: alerts });
    await until(async () => (await page.getByLabel("Alerts", { exact: true }).inputValue()) === "eve.json", "the alerts are chosen");
    await page.getByRole("button", { name: "Score", exact: true }).click();
    await page.getByText("Detection").first().waitFor();
    const form = page.locator("main");
    assert.match(await fact(form, "Detection"), /^50\.00\s%$/);
    assert.match(await fact(form, "Missed"), /^1\s*of 2 attacks$/);
    assert.match(await fact(form, "False alerts"), /^1\s*of 2 near misses$/);
  },

  async "a capture is replayed as often and as fast as it was asked"(page) {
    await page.goto(`${url}/#/replay`);
    await page.getByRole("button", { name: "New replay" }).first().click();
    await page.locator('section[aria-label^="The replay"] input[type=file]').setInputFiles({ name: "hundred.pcap", mimeType: "application/octet-stream", buffer: pcap(100) });
    await until(async () => (await page.getByLabel("Capture", { exact: true }).inputValue()) === "hundred.pcap", "the capture is chosen");
    if (!(await page.getByLabel("Address of port B").count())) await page.getByRole("button", { name: "Add a port" }).click();
    await page.getByLabel("Address of port B").fill("veth-b");
    await page.getByLabel("Address of port B").press("Tab");
    await page.getByLabel("Second port, for the server side").selectOption("B");
    await page.getByLabel("Speed").selectOption("pps");
    // A wrong amount is shown at its field.
    const amount = page.getByLabel("Frames per second", { exact: true });
    await page.getByLabel("Repeat").fill("often");
    await page.getByLabel("Repeat").press("Tab");
    await page.locator(".field", { has: page.getByLabel("Repeat") }).locator(".problem").waitFor();
    await amount.fill("100");
    await page.getByLabel("Repeat").fill("3");
    await page.getByLabel("Repeat").press("Tab");
    await page.getByText("ready", { exact: true }).waitFor();
    const before = counted("veth-b").rx;
    await page.getByRole("button", { name: "Start only replays" }).click();
    await page.waitForURL(/#\/run\?id=/);
    await until(async () => (await figure(page, "A sent")) > 0, "frames on the chart");
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
    const run = page.getByLabel("The run", { exact: true });
    await until(async () => (await fact(run, "Sent")) === "300", "three times a hundred");
    assert.equal(await fact(run, "Received"), "300");
    assert.ok(counted("veth-b").rx - before >= 300);
    await page.getByRole("link", { name: "Report", exact: true }).click();
    assert.equal(await fact(page.getByLabel("Replay", { exact: true }), "Loops"), "3");
    await page.goto(`${url}/#/replay`);
    await page.getByRole("button", { name: "Remove the replay" }).click();
    await page.getByText("No replay yet").waitFor();
  },

  async "by the mouse alone a mix of four kinds is made, run, changed and reported"(page) {
    await page.goto(`${url}/#/streams`);
    const kept = await page.evaluate(() => localStorage.getItem("squall.draft"));
    const mix = page.getByRole("navigation", { name: "Mix of the profile" });
    const click = (name) => page.getByRole("button", { name }).first().click();
    const streams = page.getByRole("listbox", { name: "Streams" }).getByRole("option");
    while (await streams.count()) await click("Remove the stream");
    await click("New stream");
    await mix.getByRole("link", { name: "no flow templates" }).click();
    await click("Load example");
    await page.getByRole("listbox", { name: "Templates" }).getByRole("option", { name: /^web/ }).waitFor();
    await mix.getByRole("link", { name: "no replays" }).click();
    await click("hundred.pcap");
    await page.getByRole("listbox", { name: "Replays" }).getByRole("option", { name: /hundred\.pcap/ }).waitFor();
    await page.getByLabel("Second port, for the server side").selectOption("B");
    await mix.getByRole("link", { name: "no attacks" }).click();
    await click("New attack");
    await page.getByLabel("Rules file").selectOption("two.rules");
    for (const name of ["1 stream", "2 flow templates", "1 replay", "1 attack"]) await mix.getByRole("link", { name, exact: true }).waitFor();
    // The start button on each page of the mix starts the whole mix.
    await page.getByText("ready", { exact: true }).waitFor();
    if (shots) await page.screenshot({ path: `${shots}/mix.png` });
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.waitForURL(/#\/run\?id=/);
    const id = new URLSearchParams(page.url().split("?")[1]).get("id");
    await page.getByRole("table", { name: "Flows of each template" }).getByRole("row", { name: /^web client/ }).waitFor();
    const stats = () => ask(page, `/runs/${id}/stats`);
    // A rate is changed during a run, by a click on the slider.
    const slider = page.locator("#rate-slider");
    const { x, y, width, height } = await slider.boundingBox();
    await page.mouse.click(x + width * 0.25, y + height / 2);
    const percent = Number(await slider.inputValue());
    assert.ok(percent > 30 && percent < 70, `${percent} %`);
    await until(async () => (await ask(page, `/runs/${id}`)).mult === percent / 100, "the daemon has it");
    await until(async () => {
      const sources = (await stats()).report.sources;
      return ["streams", "flows", "replay", "attacks"].every((kind) => sources.some((source) => source.kind === kind && source.sent > 0));
    }, "each kind has sent");
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await page.getByRole("link", { name: "Report", exact: true }).click();
    await page.getByTestId("report-html").waitFor();
    await page.getByRole("table", { name: "Flows of each template" }).waitFor();
    await page.getByRole("table", { name: "Streams" }).getByText("stream 1").waitFor();
    for (const name of ["Replay", "Attacks"]) await page.locator(`section[aria-label="${name}"]`).waitFor();
    // The next steps use the earlier profile.
    await page.evaluate((draft) => localStorage.setItem("squall.draft", draft), kept);
    await page.reload();
  },

  async "a run that falls behind says so in red while it goes on"(page) {
    // A higher rate than any machine can send, so this run is never valid.
    const stream = { name: "too fast", packet: "eth/ipv4/udp", size: 64, rate: "10000 Mpps" };
    const { run } = await ask(page, "/runs", "POST", { owner: "alice", name: "too fast", profile: { duration: "5 min", ports: { A: "null:" }, stream: [stream] } });
    await page.goto(`${url}/#/run?id=${run.id}`);
    const notice = page.getByTestId("lagging");
    await notice.getByText(/sent [^%]* of [^%]* frames asked so far/).waitFor();
    await page.getByText("running, behind").waitFor();
    const number = async (id) => Number((await page.getByTestId(id).textContent()).replace(/[^\d.]/g, ""));
    assert.ok((await number("due-packets")) > 0);
    const colours = await page.evaluate(() => {
      const of = (selector) => getComputedStyle(document.querySelector(selector)).color;
      const probe = document.body.appendChild(Object.assign(document.createElement("i"), { style: "color: var(--bad)" }));
      const bad = getComputedStyle(probe).color;
      probe.remove();
      return [bad, of('[data-testid="tx-packets"]'), of('[data-testid="due-packets"]')];
    });
    assert.ok(colours.every((colour) => colour === colours[0]), `${colours} are red`);
    await page.getByLabel("Pages").getByText("behind schedule").first().waitFor({ state: "attached" });
    if (shots) await page.screenshot({ path: `${shots}/behind.png` });
    // All other views show it as well, also after opening the run from the list.
    await page.goto(`${url}/#/servers`);
    await page.getByText("running, behind").waitFor();
    await page.goto(`${url}/#/conversations?id=${run.id}`);
    await page.getByText("running, behind").waitFor();
    await page.goto(`${url}/#/runs`);
    const row = page.locator(".list tbody tr").first();
    await row.getByText("running, behind").waitFor();
    await row.getByRole("button", { name: "too fast" }).click();
    await notice.getByText(/asked so far/).waitFor();
    await page.getByRole("link", { name: "Watch" }).click();
    await notice.waitFor();
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
    // A run that keeps to its schedule shows no such notice.
    const slow = { ...stream, rate: 100 };
    const calm = (await ask(page, "/runs", "POST", { owner: "alice", profile: { duration: "5 min", ports: { A: "null:" }, stream: [slow] } })).run;
    await page.goto(`${url}/#/run?id=${calm.id}`);
    await until(async () => (await number("due-packets")) > 50, "it is asked");
    // On a busy machine this run is late, too, and its verdict reports it.
    const isLate = async () => !(await ask(page, `/runs/${calm.id}/stats`)).report.verdict.valid;
    await until(async () => (await notice.count()) === 0 || (await isLate()), "nothing is red");
    await ask(page, `/runs/${calm.id}/stop`, "POST", {});
  },

  async "a standard test is estimated, followed, stopped, and run to its end"(page) {
    await page.goto(`${url}/#/tests`);
    const field = (name) => page.getByLabel(name, { exact: true });
    const estimate = page.getByTestId("estimate");
    await field("Method").selectOption("soak");
    await field("Port A").fill("loop:gui-soak");
    await field("Port B").fill("");
    await field("Highest rate").fill("fast");
    await page.getByText(/max_rate|"fast"/).first().waitFor();
    await field("Highest rate").fill("1 kpps");
    await field("Rest between trials, seconds").fill("0");
    const quick = page.getByLabel(/^Short trials/);
    await quick.check();
    assert.equal(await field("Trial (s)").inputValue(), "1", "the time of short trials");
    await quick.uncheck();
    assert.equal(await field("Trial (s)").inputValue(), "60");
    await field("Trial (s)").fill("long");
    await page.locator(".field", { has: field("Trial (s)") }).locator(".problem").waitFor();
    await field("Trial (s)").fill("0.5");
    await until(async () => /in 7200 trials/.test(await estimate.textContent()), "an hour of trials of half a second");
    await page.getByRole("button", { name: "Start the test" }).click();
    await page.waitForURL(/#\/tests\?id=/);
    const rows = page.getByRole("table", { name: "Latest trials" }).locator("tbody tr");
    await until(async () => (await rows.count()) >= 2, "trials come");
    assert.match(await page.getByTestId("label").textContent(), /soak|trial|load/i);
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await page.getByRole("dialog", { name: "Stop the test?" }).getByRole("button", { name: "Stop", exact: true }).click();
    await until(async () => (await page.getByTestId("status").textContent()) === "STOPPED", "it is stopped");

    await page.getByRole("link", { name: "New test" }).click();
    await field("Method").selectOption("rfc2544");
    await field("Port A").fill("loop:gui-test,virtual,drain=10kpps,buffer=50");
    await field("Port B").fill("");
    await field("Highest rate").fill("100 kpps");
    const tests = page.getByRole("group", { name: "Tests" });
    for (const title of ["Latency", "Frame loss", "Back to back", "Recovery"]) await tests.getByLabel(title, { exact: true }).uncheck();
    assert.ok(await tests.getByLabel("Throughput", { exact: true }).isChecked(), "one test is left");
    await field("Frame sizes").fill("64");
    await field("Trial (s)").fill("1");
    await until(async () => /trials/.test(await estimate.textContent()), "it is estimated");
    await page.getByRole("button", { name: "Start the test" }).click();
    await page.waitForURL(/#\/tests\?id=/);
    await until(async () => (await page.getByTestId("status").textContent()) === "MEASURED", "it is measured");
    const id = new URL(page.url().replace("#/", "")).searchParams.get("id");
    const { figures } = await ask(page, `/runs/${id}/report`);
    const [{ value }] = figures.filter(({ name }) => name === "throughput/64");
    assert.ok(value > 9950 && value <= 10000, `${value}`);
    assert.match(await ask(page, `/runs/${id}/report.html`), /RFC 2544/);
    await page.goto(`${url}/#/runs?kind=test`);
    await page.getByRole("button", { name: /RFC 2544 on/ }).click();
    await page.getByTestId("report-html").waitFor();
  },

  async "what others wrote is imported, and a mistake is marked where it is"(page) {
    await page.goto(`${url}/#/streams`);
    const list = page.getByRole("listbox", { name: "Streams" }).getByRole("option");
    const text = page.getByRole("textbox", { name: "Text" });
    const dialog = page.getByRole("dialog", { name: "Import" });
    const imported = async (kind, fill, more) => {
      const before = await list.count();
      await page.getByRole("button", { name: "Import" }).click();
      await page.getByRole("tab", { name: kind }).click();
      await fill();
      await dialog.getByRole("button", { name: "Import", exact: true }).click();
      await dialog.waitFor({ state: "hidden" });
      assert.equal(await list.count(), before + more, kind);
      await page.locator('[data-octet="0"]').waitFor();
      await until(async () => (await page.locator('[aria-label="Streams"] [aria-selected=true]').count()) === 1, "it is the one that is shown");
    };
    const octet = (at, is) => until(async () => (await page.locator(`[data-octet="${at}"]`).textContent()) === is, `octet ${at} is ${is}`);
    await imported("Scapy", () => text.fill('Ether()/IP(dst="48.0.0.1", ttl=9)/UDP(dport=53)'), 1);
    await octet(22, "09");
    await imported("Hex", () => text.fill(pcap(1).subarray(40).toString("hex").replace(/(..)/g, "$1 ")), 1);
    await octet(14, "45");
    await imported("Capture", () => page.getByLabel(/^Capture on the daemon/).selectOption("hundred.pcap"), 100);
    await page.getByRole("button", { name: "Import" }).click();
    await page.getByRole("tab", { name: "Profile" }).click();
    await text.fill('[[stream]]\npacket = "eth/ipv4/udp"\nrate = "fast"\n');
    await dialog.getByRole("button", { name: "Import", exact: true }).click();
    await dialog.getByRole("alert").getByText("3:8").waitFor();
    assert.equal(await text.evaluate((area) => area.value.slice(area.selectionStart, area.selectionEnd)), '"fast"');
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Import" }).click();
    await text.fill('ports = { A = "veth-a" }\n[[stream]]\nname = "imported"\npacket = "eth/ipv4/tcp"\nrate = "1 kpps"\n');
    await page.getByLabel("Replace the profile").check();
    await dialog.getByRole("button", { name: "Import", exact: true }).click();
    await until(async () => (await list.count()) === 1, "it is in place of all others");
  },

  async "clients and servers are set up, and a mistake stands at its field"(page) {
    await page.goto(`${url}/#/flows`);
    await page.getByText("No template yet").waitFor();
    await page.getByLabel("Address of port A").fill("veth-a");
    await page.getByLabel("Address of port A").press("Tab");
    if (!(await page.getByLabel("Address of port B").count())) await page.getByRole("button", { name: "Add a port" }).click();
    await page.getByLabel("Address of port B").fill("veth-b");
    await page.getByLabel("Address of port B").press("Tab");
    await page.getByRole("button", { name: "Load example" }).click();
    const list = page.getByRole("listbox", { name: "Templates" }).getByRole("option");
    await until(async () => (await list.count()) === 2, "the two of the example");
    await list.nth(0).click();
    const problem = (label) => page.locator(".field", { has: page.getByLabel(label, { exact: true }) }).locator(".problem");
    for (const [label, wrong, right] of [
      ["Servers", "48.0.0.4-48.0.0.1", "48.0.0.1-48.0.0.4"],
      ["Requests", "none", "2"],
      ["Flows per second (CPS)", "fast", "80"],
    ]) {
      const field = page.getByLabel(label, { exact: true });
      await field.fill(wrong);
      await field.press("Tab");
      await problem(label).waitFor();
      await field.fill(right);
      await field.press("Tab");
      await problem(label).waitFor({ state: "detached" });
    }
    await page.getByLabel("Application", { exact: true }).selectOption("exchange");
    await page.getByLabel("Response", { exact: true }).fill("2 KiB");
    await page.getByLabel("Response", { exact: true }).press("Tab");
    await page.getByLabel("Over TLS", { exact: true }).check();
    await page.getByLabel("Early data", { exact: true }).selectOption("true");
    // The streams do not matter here.
    await page.goto(`${url}/#/streams`);
    while (await page.getByRole("listbox", { name: "Streams" }).getByRole("option").count()) await page.getByRole("button", { name: "Remove the stream" }).click();
    await page.goto(`${url}/#/flows`);
    await page.getByLabel("Stop after").fill("");
    await page.getByLabel("Stop after").press("Tab");
    await page.getByText("ready", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Export" }).click();
    await until(async () => /\[\[template\]\][\s\S]*exchange[\s\S]*early_data = true/.test((await page.locator("dialog pre").textContent()) ?? ""), "they are in the profile");
    await page.getByRole("button", { name: "Close" }).click();
  },

  async "flows run: figures by template, a pause and another load of one"(page) {
    await page.goto(`${url}/#/flows`);
    await page.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/#\/run\?id=/);
    const table = page.getByRole("table", { name: "Flows of each template" });
    const cell = async (template, column) => {
      const row = table.getByRole("row", { name: new RegExp(`^${template} client`) });
      return Number(((await row.locator(`[data-label="${column}"]`).textContent()) ?? "").replace(/[^\d]/g, ""));
    };
    await table.getByRole("row", { name: /^web client/ }).waitFor();
    await until(async () => (await cell("web", "Completed")) > 20 && (await cell("names", "Completed")) > 10, "both complete flows");
    await until(async () => Math.abs((await cell("web", "CPS")) - 80) < 25, "about 80 a second");
    await table.getByRole("button", { name: "Pause web" }).click();
    await until(async () => (await cell("web", "CPS")) === 0 && (await cell("names", "CPS")) > 20, "one pauses, the other goes on");
    await table.getByRole("button", { name: "Resume web" }).click();
    await table.getByRole("button", { name: "Load of web" }).click();
    const dialog = page.getByRole("dialog", { name: "Load of web" });
    await dialog.getByLabel("Amount").fill("-1");
    await dialog.getByRole("button", { name: "Set" }).click();
    await dialog.locator(".problem").waitFor();
    await dialog.getByLabel("Amount").fill("20");
    await dialog.getByRole("button", { name: "Set" }).click();
    await until(async () => Math.abs((await cell("web", "CPS")) - 20) < 10, "about 20 a second");
    // The counters are cleared on this page, not in the daemon.
    const id = new URLSearchParams(page.url().split("?")[1]).get("id");
    const before = await cell("names", "Begun");
    await page.getByRole("button", { name: "Clear stats" }).click();
    await page.getByText("The daemon's figures stay").waitFor();
    await until(async () => (await cell("names", "Begun")) < before, "it counts anew");
    const { report } = await ask(page, `/runs/${id}/stats`);
    assert.ok(report.flows.templates[1].client.attempted >= before, "the daemon counts on");
    await page.getByRole("button", { name: "Show all" }).click();
    await until(async () => (await cell("names", "Begun")) >= before, "all of it again");
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("link", { name: "Report", exact: true }).click();
    await page.getByLabel("Report").waitFor();
    await page.getByRole("table", { name: "Flows of each template" }).getByText("all templates").first().waitFor();
  },

  async "failures have reasons, and are red from the threshold on"(page) {
    // No host answers: the flows do not begin, because the server has no MAC address.
    const profile = {
      ports: { A: "loop:nobody" },
      flows: { clients: "A" },
      template: [{ name: "lonely", clients: "16.0.0.1", servers: "48.0.0.1", app: "http", cps: 50 }],
    };
    const { run } = await ask(page, "/runs", "POST", { owner: "alice", profile });
    await page.goto(`${url}/#/run?id=${run.id}`);
    await page.getByLabel("Failures by reason").getByText("unresolved").waitFor();
    const red = page.getByRole("table", { name: "Flows of each template" }).locator('[data-label="Not begun"] .over');
    await red.waitFor();
    await page.getByRole("button", { name: "Thresholds" }).click();
    const dialog = page.getByRole("dialog", { name: "Thresholds" });
    await dialog.getByLabel("Flows not begun above").fill("1000000");
    await dialog.getByLabel("Flows not begun above").press("Tab");
    await dialog.getByRole("button", { name: "Done" }).click();
    await red.waitFor({ state: "detached" });
    await page.reload();
    await page.getByLabel("Failures by reason").getByText("unresolved").waitFor();
    assert.equal(await red.count(), 0, "it is remembered");
    await page.getByRole("button", { name: "Thresholds" }).click();
    await dialog.getByRole("button", { name: "Defaults" }).click();
    await dialog.getByRole("button", { name: "Done" }).click();
    await red.waitFor();
    await ask(page, `/runs/${run.id}/stop`, "POST", {});
  },

  async "routers show their sessions and groups, and take orders"(page) {
    const { run } = await ask(page, "/runs", "POST", { owner: "alice", profile: { ports: { A: "loop:routed" }, stream: [{ packet: "eth/ipv4/udp", rate: "100 pps" }], duration: "1 h" } });
    const router = {
      name: "r1", port: "A", daemon: "BIRD", routes: 300, sent: 12, received: 11, dropped: 0, downs: 0, more_steps: 0, expected: null, failed: null, cpu_s: 0, memory: 0,
      protocols: [{ name: "bgp1", kind: "BGP", state: "Established", up: true, up_after_s: 1.5, neighbor: "10.0.0.2", error: "", imported: 7, exported: 300 }],
      groups: [{ name: "routes", routes: 100, withdrawn: 0, flaps: 0, late_flaps: 0 }, { name: "edge", routes: 200, withdrawn: 50, flaps: 0, late_flaps: 0 }],
      steps: [{ action: "withdraw", group: "edge", neighbor: null, by: "profile", due_s: 1, begun_s: 1, acknowledged_s: 1.25, routes: 50, first_sent_s: null, last_sent_s: null, error: null }],
    };
    // Daemons of routers need BIRD, and rights that this lab does not give: the page gets one.
    const stats = new RegExp(`/runs/${run.id}/stats$`);
    const requests = new RegExp(`/runs/${run.id}/routers$`);
    await page.route(stats, async (route) => {
      const response = await route.fetch();
      const answer = await response.json();
      if (answer.report) answer.report.routers = [router];
      await route.fulfill({ response, json: answer });
    });
    const bodies = [];
    let refusal;
    await page.route(requests, async (route) => {
      bodies.push(route.request().postDataJSON());
      await route.fulfill(refusal ? { status: 400, json: { error: { code: "bad_request", message: refusal } } } : { json: run });
    });
    await page.goto(`${url}/#/run?id=${run.id}`);
    const section = page.getByRole("region", { name: "Router r1" });
    await section.getByRole("table", { name: "protocols of r1" }).getByText("Established").waitFor();
    await section.getByRole("row", { name: /^edge 200 50/ }).waitFor();
    await section.getByRole("table", { name: "steps of r1" }).getByText("withdraw edge").waitFor();
    const press = async (name, keys) => {
      await section.getByRole("button", { name, exact: true }).click();
      await until(() => bodies.length, `${name} is ordered`);
      assert.deepEqual(bodies.pop(), { router: "r1", ...keys });
    };
    await press("Withdraw", { action: "withdraw" });
    await section.getByLabel("Group", { exact: true }).selectOption("edge");
    await section.getByLabel("Number", { exact: true }).fill("20");
    await press("Announce", { action: "announce", group: "edge", count: 20 });
    await section.getByLabel("Duration", { exact: true }).fill("5 s");
    await press("Withdraw", { action: "withdraw", group: "edge", count: 20, duration: "5 s" });
    await press("Silent", { action: "silent", duration: "5 s" });
    await press("Talk", { action: "talk" });
    await press("Refresh", { action: "refresh" });
    await section.getByLabel("Neighbor", { exact: true }).selectOption("10.0.0.2");
    await press("Down", { action: "down", neighbor: "10.0.0.2", duration: "5 s" });
    await press("Up", { action: "up", neighbor: "10.0.0.2" });
    await press("Restart", { action: "restart" });
    refusal = "there is no group";
    await section.getByRole("button", { name: "Withdraw" }).click();
    await page.getByText(refusal).waitFor();
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run('section[aria-label="Router r1"]', { resultTypes: ["violations"] }));
    assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`), []);
    const size = page.viewportSize();
    await page.setViewportSize({ width: 360, height: 740 });
    const fits = () => section.evaluate((card) => card.scrollWidth <= card.clientWidth && card.getBoundingClientRect().right <= innerWidth);
    await until(fits, "nothing sticks out of a narrow window");
    await page.setViewportSize(size);
    await page.unroute(stats);
    await page.unroute(requests);
    // The daemon itself refuses an order for a router that the run does not have.
    await assert.rejects(ask(page, `/runs/${run.id}/routers`, "POST", { router: "r1", action: "talk" }), /there is no router/);
    await ask(page, `/runs/${run.id}/stop`, "POST", {});
  },

  async "conversations are sorted, filtered and summed by host as the report has them"(page) {
    const stream = (name, port, packet, vary = []) => ({ name, port, packet, vary, rate: "150 pps" });
    const profile = {
      ports: { A: "veth-a", B: "veth-b" },
      stream: [
        stream("asks", "A", "eth/ipv4(src=10.1.0.1, dst=10.2.0.1)/udp(sport=1024, dport=53)", [{ field: "udp.sport", op: "increment", min: 1024, max: 1026 }]),
        // Found by a click on the request, so the host that sent it is A.
        { ...stream("answers", "B", "eth/ipv4(src=10.2.0.1, dst=10.1.0.1)/udp(sport=53, dport=1024)"), start_delay: "1 s" },
        stream("web", "A", "eth/ipv4(src=10.1.0.10, dst=10.2.0.2)/tcp(sport=2000, dport=80)"),
      ],
    };
    const { run } = await ask(page, "/runs", "POST", { owner: "alice", name: "talk", profile, options: { received_flows: true } });
    await page.goto(`${url}/#/conversations?id=${run.id}&q=net+10.0.0.0/8`);
    const table = page.getByRole("table", { name: /conversations|address pairs|endpoints/ });
    const lines = table.locator("tbody tr");
    const column = async (name) => (await table.locator(`td[data-column="${name}"]`).allTextContents()).map((text) => text.trim());
    const numbers = async (name) => (await column(name)).map((text) => Number(text.replace(/\D/g, "")));
    await until(async () => (await lines.count()) === 4, "three of UDP, one of TCP");
    const total = async () => (await numbers("packets")).reduce((a, b) => a + b, 0);
    const first = await total();
    await until(async () => (await total()) > first, "it is live");
    await until(async () => (await numbers("packets_ba")).some((n) => n > 0), "there are answers");
    // Sorting from the keyboard works like clicking: the same header again reverses the order.
    const head = (name) => table.getByRole("columnheader", { name, exact: true });
    await head("Port A").getByRole("button").focus();
    await page.keyboard.press("Enter");
    await until(async () => (await head("Port A").getAttribute("aria-sort")) === "ascending", "the header says so");
    await until(async () => `${await column("a_port")}` === "1024,1025,1026,2000", "ports begin with the smallest");
    await head("Port A").getByRole("button").click();
    await until(async () => `${await column("a_port")}` === "2000,1026,1025,1024", "and then with the largest");
    await head("Packets").getByRole("button").click();
    await until(async () => (await head("Packets").getAttribute("aria-sort")) === "descending", "figures begin with the largest");
    await until(async () => {
      const seen = await numbers("packets");
      return seen[0] > seen[3] && seen.every((n, i) => i === 0 || n <= seen[i - 1]);
    }, "and are sorted");
    assert.equal(await table.locator("th[aria-sort]").count(), 1, "one column is sorted by");
    await head("Address A").getByRole("button").click();
    await until(async () => (await column("a")).at(-1) === "10.1.0.10" && (await column("a"))[0] === "10.1.0.1", "addresses sort as numbers");
    // An invalid filter is not applied, and its error is shown.
    const filter = page.getByLabel("Filter", { exact: true });
    const shown = page.getByTestId("shown");
    await filter.fill("proto tcp or port abc");
    await page.locator(".bar .problem", { hasText: "column 19: expected a port" }).waitFor();
    assert.equal(await filter.getAttribute("aria-invalid"), "true");
    assert.equal(await lines.count(), 4, "what was shown before stays");
    await filter.fill("proto tcp and host 10.2.0.2");
    await until(async () => (await lines.count()) === 1 && `${await column("b_port")}` === "80", "the one of TCP");
    assert.equal(await page.locator(".bar .problem").count(), 0);
    assert.match((await shown.textContent()).replace(/\s+/g, " "), /1 of 1 matching conversations shown, \d+ in total/);
    // A filter in a link works like a typed one: no earlier answer remains.
    await page.goto(`${url}/#/ports`);
    await page.goto(`${url}/#/conversations?id=${run.id}&q=port+x`);
    await page.locator(".bar .problem", { hasText: "column 6: expected a port" }).waitFor();
    assert.equal(await page.getByText("Loading").count(), 0, "nothing more is waited for");
    await page.goto(`${url}/#/conversations?id=${run.id}&q=port+53`);
    await until(async () => (await filter.inputValue()) === "port 53" && (await lines.count()) === 3, "a link brings its filter");
    await filter.fill("net 10.0.0.0/8");
    await until(async () => (await lines.count()) === 4, "all of them again");
    // The figures of the report, added up independently of the daemon.
    await ask(page, `/runs/${run.id}/stop`, "POST", {});
    await until(async () => (await ask(page, `/runs/${run.id}`)).state === "done", "it ends");
    const { received_flows } = await ask(page, `/runs/${run.id}/report`);
    const listed = received_flows.flows.filter(({ src }) => src.startsWith("10."));
    assert.equal(listed.length, 5);
    const sum = (flows, key) => flows.reduce((n, flow) => n + flow[key], 0);
    const between = (a, b) => (flow) => flow.src === a && flow.dst === b;
    const packets = sum(listed, "packets");
    await until(async () => (await total()) === packets, "the page has the figures of the report");
    const row = lines.filter({ has: page.locator('td[data-column="a_port"]', { hasText: /^1024$/ }) });
    const cell = async (line, name) => Number((await line.locator(`td[data-column="${name}"]`).textContent()).replace(/\D/g, ""));
    const [there, back] = [listed.filter((flow) => flow.src_port === 1024), listed.filter((flow) => flow.dst_port === 1024)];
    assert.deepEqual([await cell(row, "packets_ab"), await cell(row, "packets_ba")], [sum(there, "packets"), sum(back, "packets")]);
    assert.ok(sum(there, "packets") > 0 && sum(back, "packets") > 0, "there is something to compare");
    await page.getByRole("tab", { name: "Address pairs" }).click();
    await until(async () => (await lines.count()) === 2, "two pairs of addresses");
    assert.ok((await numbers("packets")).includes(listed.filter(({ src, dst }) => `${src}${dst}`.includes("10.1.0.10")).reduce((n, { packets }) => n + packets, 0)));
    await page.getByRole("tab", { name: "Endpoints" }).click();
    await until(async () => (await lines.count()) === 4, "four hosts");
    const host = lines.filter({ has: page.locator('td[data-column="address"]', { hasText: /^10\.1\.0\.1$/ }) });
    assert.deepEqual(
      [await cell(host, "tx_packets"), await cell(host, "rx_packets")],
      [sum(listed.filter(between("10.1.0.1", "10.2.0.1")), "packets"), sum(listed.filter(between("10.2.0.1", "10.1.0.1")), "packets")],
    );
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()]);
    const [names, ...file] = readFileSync(await download.path(), "utf8").trim().split("\r\n").map((line) => line.split(","));
    const of = (address, name) => Number(file.find((line) => line[0] === address)[names.indexOf(name)]);
    assert.deepEqual([file.length, of("10.2.0.2", "rx_octets")], [4, sum(listed.filter(({ dst }) => dst === "10.2.0.2"), "octets")]);
    assert.equal((await ask(page, `/runs/${run.id}/endpoints?filter=net+10.0.0.0/8`)).packets, 2 * packets, "a packet is one at each of two hosts");
  },

  async "a port is received on without sending, and other runs say why they have no conversations"(page) {
    const profile = { ports: { A: "veth-a" }, stream: [{ name: "one", packet: "eth/ipv4(src=10.3.0.1, dst=10.3.0.2)/udp(sport=7, dport=9)", rate: "2 kpps", vary: [{ field: "udp.sport", op: "increment", min: 1001, max: 1300 }] }] };
    const { run } = await ask(page, "/runs", "POST", { owner: "alice", profile });
    await page.goto(`${url}/#/conversations?id=${run.id}`);
    await page.getByText("This run does not measure received flows").waitFor();
    const form = page.getByRole("form", { name: "Receive on a port" });
    await form.getByLabel("Port", { exact: true }).fill("veth-b");
    await form.getByLabel("Capture filter").fill("udp and and");
    await form.getByRole("button", { name: "Start" }).click();
    await form.locator(".problem").first().waitFor();
    await form.getByLabel("Capture filter").fill("udp port 9");
    await form.getByRole("button", { name: "Start" }).click();
    const table = page.getByRole("table", { name: "conversations" });
    // There are more rows than are drawn at once.
    const shown = async () => ((await page.getByTestId("shown").textContent()) ?? "").replace(/\s+/g, " ");
    await until(async () => (await shown()).startsWith("200 of 300 conversations shown"), "it says of how many");
    assert.equal(await table.locator("tbody tr").count(), 200);
    await page.getByRole("button", { name: "Show more" }).click();
    await until(async () => (await table.locator("tbody tr").count()) === 300, "the others");
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("link", { name: "Report", exact: true }).click();
    await page.getByLabel("Report").getByRole("link", { name: "Conversations" }).click();
    await until(async () => (await shown()).startsWith("200 of 300 conversations shown"), "the report has them, too");
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()]);
    assert.equal(readFileSync(await download.path(), "utf8").trim().split("\r\n").length, 1 + 300, "all of them are in the file");
    await ask(page, `/runs/${run.id}/stop`, "POST", {});
  },

  async "another server is in the list with its token, and the pages are about it"(page) {
    const form = page.getByRole("form", { name: "Add a server" });
    const add = async (address, secret) => {
      await form.getByLabel("Address").fill(address);
      await form.getByLabel("Token").fill(secret);
      await form.getByLabel("Name").fill("the other");
      await form.getByRole("button", { name: "Add" }).click();
    };
    // A daemon that does not accept this page gets no request, even while the list of accepted ones
    // is loading: the browser's refusal would be an error in the console.
    const info = `${url}/squall/v1/info`;
    let answer;
    const held = new Promise((resolve) => (answer = resolve));
    await page.route(info, async (route) => {
      await held;
      await route.continue();
    });
    await page.goto(`${url}/#/log`);
    await page.getByRole("heading", { name: "Request log" }).waitFor();
    await page.goto(`${url}/#/servers`);
    await add("https://127.0.0.1:9", otherToken);
    await form.getByRole("button", { name: "Add" }).and(page.locator(":disabled")).waitFor();
    assert.equal(await form.locator(".problem").count(), 0, "nothing is known yet");
    answer();
    await form.locator(".problem", { hasText: "--peer" }).waitFor();
    await page.unroute(info);
    await add(other, token);
    await form.locator(".problem", { hasText: "does not accept this token" }).waitFor();
    await add(other, otherToken);
    const card = page.getByRole("region", { name: "the other" });
    await card.getByText("Nothing is running").waitFor();
    await card.getByRole("button", { name: "Show the other" }).click();
    await page.getByText(`This is the other, ${other}`).waitFor();
    await page.getByText("Live", { exact: true }).waitFor();
    const before = (await ask(page, "/runs")).runs.length;
    // Only that profile starts, and the other daemon's WebSocket reports its run.
    await page.evaluate(() => localStorage.setItem("squall.draft", JSON.stringify({ ports: { A: "loop:there" }, stream: [{ name: "there", packet: "eth/ipv4/udp", rate: "500 pps" }] })));
    // Before the page saves its own draft again.
    await page.reload();
    await page.goto(`${url}/#/streams`);
    await page.getByText("ready", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/#\/run\?id=/);
    await until(async () => Math.abs((await figure(page, "A sent")) - 500) < 100, "about 500 frames a second on the chart");
    const at = page.url();
    assert.equal((await ask(page, "/runs")).runs.length, before, "the page's own daemon has no run more");
    await page.goto(`${url}/#/servers`);
    await card.getByText("running").waitFor();
    await page.goto(at);
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("link", { name: "Report", exact: true }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByTestId("report-html").click()]);
    assert.ok(readFileSync(await download.path(), "utf8").includes("there"), "its report is downloaded");
    await page.getByRole("button", { name: "Back to this server" }).click();
    await page.getByText("This is the other").waitFor({ state: "detached" });
    await page.goto(`${url}/#/servers`);
    await card.getByRole("button", { name: "Remove the other" }).click();
    await card.waitFor({ state: "detached" });
    assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage))).includes(otherToken), "its token is forgotten");
    await page.evaluate(() => localStorage.setItem("squall.draft", JSON.stringify({ ports: { A: "veth-a" }, stream: [{ name: "web", packet: "eth/ipv4/tcp", rate: "1 kpps" }] })));
    await page.reload();
  },

  async "another's port is told at its field, and taken by force"(page) {
    const alices = { ports: { A: "veth-a" }, stream: [{ name: "theirs", packet: "eth/ipv4/udp", rate: 100 }] };
    const { run } = await ask(page, "/runs", "POST", { owner: "alice", profile: alices });
    await page.goto(`${url}/#/streams`);
    await page.getByRole("button", { name: "Start" }).click();
    await page.locator(".port .problem", { hasText: "held by alice" }).waitFor();
    await page.getByRole("alert").getByRole("link", { name: "Ports" }).click();
    const row = page.getByRole("row", { name: /veth-a/ });
    await row.getByText("alice").waitFor();
    await row.getByRole("button", { name: /Release/ }).click();
    await page.getByRole("button", { name: "Release by force" }).click();
    await row.getByText("free").waitFor();
    assert.equal((await ask(page, `/runs/${run.id}`)).state, "interrupted");
  },

  async "a port that no run has shows what its interface counts"(page) {
    const profile = { ports: { A: "veth-a" }, stream: [{ name: "counted", packet: "eth/ipv4/udp", rate: "500 pps" }] };
    const { run } = await ask(page, "/runs", "POST", { owner: "alice", profile });
    await page.goto(`${url}/#/ports`);
    const row = page.getByRole("row", { name: /veth-b/ });
    await row.getByText("free").waitFor();
    const received = row.locator('[data-label="Received"]');
    await until(async () => /[1-9].*pps/.test((await received.textContent()) ?? ""), "frames come, and are shown");
    const total = async () => Number((await row.getByTestId("rx-total").getAttribute("title")).match(/it exists: ([\d,]+) frames/)[1].replace(/,/g, ""));
    const before = await total();
    assert.ok(before > 0 && before <= counted("veth-b").rx, `${before} frames are shown`);
    await until(async () => (await total()) > before, "the figure is live");
    await ask(page, `/runs/${run.id}/stop`, "POST", {});
  },

  async "what is refused is told at its field, and leaves no report"(page) {
    const runs = async () => (await ask(page, "/runs")).runs.length;
    const before = await runs();
    const problemOf = (label) => page.locator(".field", { has: page.getByLabel(label, { exact: true }) }).locator(".problem");
    await page.goto(`${url}/#/capture`);
    const form = page.getByRole("form", { name: "New capture" });
    await form.getByLabel("Port").fill("veth-b");
    await form.getByLabel("Filter").fill("udp and and");
    await form.getByRole("button", { name: "Start" }).click();
    await problemOf("Filter").waitFor();
    assert.equal(await form.getByLabel("Filter").getAttribute("aria-invalid"), "true");
    assert.equal(await page.getByRole("alert").count(), 0, "it stands there alone");
    await form.getByLabel("Port").fill("veth-q");
    await form.getByLabel("Filter").fill("udp");
    await form.getByRole("button", { name: "Start" }).click();
    await problemOf("Port").filter({ hasText: "veth-q" }).waitFor();
    assert.equal(await problemOf("Filter").count(), 0, "what was wrong before is not told any more");
    await page.goto(`${url}/#/streams`);
    const address = page.getByLabel("Address of port A");
    const good = await address.inputValue();
    await address.fill("veth-q");
    await address.press("Tab");
    await page.getByRole("button", { name: "Start" }).click();
    await page.locator(".port .problem", { hasText: "veth-q" }).waitFor();
    await address.fill(good);
    await address.press("Tab");
    assert.equal(await runs(), before, "nothing of it is among the reports");
  },

  async "a capture without packets says so"(page) {
    const { run } = await ask(page, "/captures", "POST", { ports: ["veth-b"], filter: "ether proto 0x4242", duration_s: 0.2, file: "nothing.pcap" });
    await until(async () => (await ask(page, `/runs/${run.id}`)).state === "done", "it ends");
    await page.goto(`${url}/#/capture?file=nothing.pcap`);
    await page.getByText("The capture has no packets").waitFor();
    await page.goto(`${url}/#/capture?file=hundred.pcap`);
    await page.getByRole("table", { name: "Packets" }).or(page.getByLabel("Packets", { exact: true })).first().waitFor();
    await page.getByLabel("Packet filter").fill("ether proto 0x4242");
    await page.getByLabel("Packet filter").press("Enter");
    await page.getByText("No packet matches the filter").waitFor();
  },

  async "runs are compared where both have a report, and cannot be where not"(page) {
    const profile = { ports: { A: "loop:compared" }, stream: [{ name: "going", packet: "eth/ipv4/udp", rate: 10 }] };
    const { run } = await ask(page, "/runs", "POST", { owner: "alice", profile, name: "still going" });
    const { runs } = await latest(page);
    const shown = runs.find((id) => id !== run.id);
    await page.goto(`${url}/#/runs?id=${shown}`);
    await page.getByLabel("Report").waitFor();
    const row = page.locator(".list tbody tr", { hasText: "still going" });
    await until(async () => await row.getByRole("button", { name: "Compare" }).isDisabled(), "a run that goes on has nothing to compare");
    await ask(page, `/runs/${run.id}/stop`, "POST", {});
    await row.getByRole("button", { name: "Compare" }).click();
    await page.getByRole("heading", { name: /Compared with still going/ }).waitFor();
    await page.getByLabel("Comparison").getByText("Duration").waitFor();
    await page.goto(`${url}/#/runs?id=${shown}&with=r-20000101-0001`);
    await page.getByLabel("Comparison").getByRole("alert").waitFor();
  },

  async "a daemon that was started anew is found, and asks who one is"(page) {
    await page.goto(`${url}/#/runs`);
    await page.locator(".list tbody tr").first().waitFor();
    const runs = await page.locator(".list tbody tr").count();
    // The script that started this one restarts the daemon.
    console.log("RESTART");
    await page.getByText("The daemon does not answer").or(page.getByLabel("Token")).first().waitFor();
    await page.getByLabel("Token").fill(token);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText("Live", { exact: true }).waitFor();
    await until(async () => (await page.locator(".list tbody tr").count()) === runs, "the runs of before are there");
  },

  async "all by the keyboard: a page, a stream, a start, a stop"(page) {
    await page.goto(`${url}/#/ports`);
    await page.getByRole("row", { name: /veth-a/ }).getByText("free").waitFor();
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor({ state: "hidden" });
    // On a busy machine the two may be more than 2.5 s apart.
    await until(async () => {
      await page.keyboard.press("g");
      await page.keyboard.press("s");
      await sleep(500);
      return await page.getByRole("heading", { name: "Streams", level: 1 }).isVisible();
    }, "g and s lead to the streams");
    const before = await page.getByRole("listbox", { name: "Streams" }).getByRole("option").count();
    await page.keyboard.press("n");
    await until(async () => (await page.getByRole("listbox", { name: "Streams" }).getByRole("option").count()) === before + 1, "n makes a stream");
    // Tab moves to the list, which is one stop; arrows move inside it.
    await page.keyboard.press("Tab");
    for (let i = 0; i < 40 && !(await page.evaluate(() => document.activeElement?.matches('[aria-label="Streams"] [role=option]'))); i++) await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowUp");
    await page.locator('[aria-label="Streams"] [role=option]:focus[aria-selected="true"]').waitFor();
    await page.keyboard.press("Control+Enter");
    await page.waitForURL(/#\/run\?id=/);
    await until(async () => (await figure(page, "A sent")) > 0, "it runs");
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press("x");
    await page.getByRole("dialog", { name: "Stop the run?" }).waitFor();
    for (let i = 0; i < 8 && (await page.evaluate(() => document.activeElement?.textContent?.trim())) !== "Stop"; i++) await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
  },

  async "a session of Open Traffic Generator is one row, and runs are found by name, result and date"(page) {
    const otg = (path, body) =>
      page.evaluate(
        async ([path, body]) => {
          const answer = await fetch(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });
          if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
        },
        [path, body],
      );
    await page.goto(`${url}/#/runs`);
    const flow = { name: "f1", tx_rx: { choice: "port", port: { tx_name: "p1", rx_names: ["p2"] } }, packet: [{ choice: "ethernet" }], rate: { choice: "pps", pps: 100 }, duration: { choice: "fixed_packets", fixed_packets: { packets: 20 } }, metrics: { enable: true } };
    await otg("/config", { ports: [{ name: "p1", location: "veth-a" }, { name: "p2", location: "veth-b" }], captures: [{ name: "c", port_names: ["p2"] }], flows: [flow] });
    const capture = (state) => otg("/control/state", { choice: "port", port: { choice: "capture", capture: { state, port_names: ["p2"] } } });
    for (let i = 0; i < 3; i++) for (const state of ["start", "stop"]) await capture(state);
    await capture("start");
    await otg("/control/state", { choice: "traffic", traffic: { choice: "flow_transmit", flow_transmit: { state: "start" } } });
    await until(async () => (await ask(page, "/runs?kind=otg")).runs[0]?.state === "done", "the flow has ended");
    await capture("stop");
    await otg("/config", {});
    await page.reload();
    const rows = page.locator(".list tbody tr");
    const more = rows.first().getByRole("button", { name: /4 captures/ });
    await more.waitFor();
    const few = await rows.count();
    await more.click();
    await until(async () => (await rows.count()) === few + 4, "the captures are unfolded");
    await more.click();
    await until(async () => (await rows.count()) === few, "and folded");
    // A search finds them by name, by result and by date.
    const search = page.getByLabel("Search runs");
    await search.fill("otg capture");
    await until(async () => (await rows.count()) === 1, "captures alone are one row, too");
    await search.fill("");
    const result = page.getByLabel("Result of runs");
    await result.selectOption("interrupted");
    const marks = () => rows.locator("td", { has: page.locator(".marks") }).allTextContents();
    await until(async () => (await marks()).length > 0 && (await marks()).every((text) => /interrupted/.test(text)), "only interrupted runs");
    await result.selectOption("");
    const day = (ahead) => new Date(Date.now() + ahead * 86_400_000).toLocaleDateString("sv-SE");
    await page.getByLabel("From", { exact: true }).fill(day(1));
    await page.getByText("Nothing matches").waitFor();
    await page.getByRole("button", { name: "Show all runs" }).click();
    await until(async () => (await rows.count()) === few, "all of them again");
    await page.getByLabel("To", { exact: true }).fill(day(0));
    await until(async () => (await rows.count()) === few, "today is included");
  },

  async "at 1280 pixels tables fit, figures do not overlap, and fields line up"(page) {
    await page.setViewportSize({ width: 1280, height: 800 });
    const mix = {
      ports: { A: "veth-a", B: "veth-b" },
      duration: "1 s",
      flows: { clients: "A", servers: "B" },
      stream: [{ name: "a stream with a long name", port: "A", packet: "eth/ipv4/udp", rate: "500 pps", latency: true }],
      template: [{ name: "surf", clients: "16.0.0.1-16.0.0.9", servers: "48.0.0.1", app: "http", cps: 50 }],
    };
    const run = (await ask(page, "/runs", "POST", { owner: "alice", name: "wide", profile: mix })).run.id;
    const settings = { tests: ["throughput", "latency", "back-to-back"], frame_sizes: [64, 1518], trial_s: 0.5, latency_s: 0.5, latency_trials: 1, bursts: 1 };
    const test = (await ask(page, "/tests", "POST", { method: "rfc2544", ports: { A: "loop:wide,virtual,drain=10kpps,buffer=50" }, max_rate: "20 kpps", rest_s: 0, settings })).run.id;
    for (const id of [run, test]) await until(async () => (await ask(page, `/runs/${id}`)).state === "done", "it ends");
    for (const id of [run, test]) {
      await page.goto(`${url}/#/runs?id=${id}`);
      await page.getByTestId("report-html").waitFor();
      await sleep(300);
      const over = await page.evaluate(() => [...document.querySelectorAll("main .scroll")].filter((table) => table.scrollWidth > table.clientWidth + 1).map((table) => table.ariaLabel));
      assert.deepEqual(over, [], "tables that are cut off");
    }
    const loop = { method: "soak", ports: { A: "veth-a", B: "veth-b" }, max_rate: "1 kpps", rest_s: 0, settings: { trial_s: 1 } };
    const long = (await ask(page, "/tests", "POST", loop)).run.id;
    await page.goto(`${url}/#/tests?id=${long}`);
    await page.getByTestId("label").waitFor();
    const overlapping = await page.evaluate(() => [...document.querySelectorAll("dl.facts > div")].filter((fact) => [...fact.children].some((part) => part.scrollWidth > part.clientWidth + 1)).map((fact) => fact.textContent));
    assert.deepEqual(overlapping, [], "figures wider than their place");
    await ask(page, `/runs/${long}/stop`, "POST", {});
    await page.goto(`${url}/#/streams`);
    // More than once, because the first steps above the fields appear when the ports are known.
    const tops = () => Promise.all(["Stop after", "Frame limit", "Seed"].map(async (label) => (await page.getByLabel(label, { exact: true }).boundingBox()).y));
    await until(async () => new Set(await tops()).size === 1, "the fields below the ports are in one line");
    await page.setViewportSize({ width: 1440, height: 900 });
  },

  async "nothing is out of reach for assistive technology, in light and dark"(page) {
    const { talk } = await latest(page);
    const talks = ["conversations?id=none", `conversations?id=${talk}`, `conversations?id=${talk}&by=pairs&q=port`, `conversations?id=${talk}&by=endpoints`];
    const places = ["ports", "streams", "streams?tab=vary", "streams?tab=shape", "flows", "run", "replay", "attacks", "attacks?tab=run", "attacks?tab=score", "capture", `capture?file=${(await latest(page)).file}&n=1`, ...talks, "servers", "runs", `runs?id=${(await latest(page)).runs[0]}`, "log"];
    // Collect all violations, so one run of this test shows everything to fix.
    const violations = [];
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      for (const place of places) {
        await page.goto(`${url}/#/${place}`);
        await page.locator("main h1").waitFor();
        await sleep(150);
        // Use the debugger protocol, which the page's content security policy does not block.
        await page.evaluate(axe);
        // In dark mode only the colors differ.
        const only = colorScheme === "dark" ? { runOnly: ["color-contrast"] } : {};
        const found = await page.evaluate((only) => globalThis.axe.run(document, { resultTypes: ["violations"], ...only }), only);
        violations.push(
          ...found.violations.map((v) => `${place}, ${colorScheme}: ${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} (${n.failureSummary?.split("\n").at(1)?.trim()})`).join(" | ")}`),
        );
      }
    }
    assert.deepEqual(violations, []);
  },

  async "nothing sticks out of a narrow window"(page) {
    await page.setViewportSize({ width: 360, height: 740 });
    const { file, runs, talk } = await latest(page);
    const known = ["ports", "streams", "streams?tab=vary", "streams?tab=shape", "flows", "run", "replay", "attacks", "attacks?tab=run", "attacks?tab=score", "capture", "servers", "runs", "log"];
    for (const place of [...known, "conversations?id=none", `conversations?id=${talk}`, `conversations?id=${talk}&by=endpoints`, `capture?file=${file}&n=1`, `runs?id=${runs[0]}&with=${runs[1]}`]) {
      await page.goto(`${url}/#/${place}`);
      await page.locator("main h1").waitFor();
      await sleep(150);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      const widest = await page.evaluate(() =>
        [...document.querySelectorAll("main, main :not(.scroll *)")]
          .filter((element) => element.getBoundingClientRect().right > innerWidth + 0.5)
          .map((element) => `${element.tagName.toLowerCase()}.${element.className}`)
          .slice(0, 12),
      );
      assert.ok(over <= 0, `${place} is ${over} pixels too wide: ${widest.join(", ")}`);
    }
    await page.setViewportSize({ width: 1440, height: 900 });
  },
};

async function picture(page) {
  mkdirSync(shots, { recursive: true });
  for (const [colorScheme, width, height] of [["light", 1440, 900], ["dark", 1440, 900], ["light", 360, 780], ["dark", 360, 780]]) {
    await page.emulateMedia({ colorScheme });
    for (const [name, place] of Object.entries(places(await latest(page)))) {
      // The window must be high enough for all charts.
      await page.setViewportSize({ width, height: name === "run" && width > 600 ? 1110 : height });
      await page.goto(`${url}/#/${place}`);
      await sleep(900);
      await page.screenshot({ path: `${shots}/${name}-${colorScheme}-${width}.png`, fullPage: width < 600 });
    }
  }
}

async function latest(page) {
  const files = await page.evaluate(() => fetch("/squall/v1/files").then((r) => r.json()));
  const runs = await page.evaluate(() => fetch("/squall/v1/runs?kind=streams").then((r) => r.json()));
  const flows = await page.evaluate(() => fetch("/squall/v1/runs?kind=flows").then((r) => r.json()));
  const talk = await page.evaluate(() => fetch("/squall/v1/runs?q=talk").then((r) => r.json()));
  return { talk: talk.runs[0]?.id, played: flows.runs[0]?.id, file: files.files.find((f) => f.kind === "capture")?.name, runs: runs.runs.map((r) => r.id) };
}

const places = ({ file, runs, played, talk }) => ({
  ports: "ports",
  streams: "streams?layer=2&field=dscp",
  vary: "streams?tab=vary",
  shape: "streams?tab=shape",
  flows: "flows",
  run: "run",
  played: `run?id=${played}`,
  servers: "servers",
  replay: "replay",
  attacks: "attacks",
  capture: `capture?file=${file}&n=2`,
  conversations: "conversations",
  talk: `conversations?id=${talk}&q=port+x`,
  endpoints: `conversations?id=${talk}&by=endpoints&q=net+10.0.0.0/8`,
  tests: "tests",
  runs: "runs",
  report: `runs?id=${runs[1]}&with=${runs[2]}`,
  log: "log",
});

/** The subjects of the pictures. */
const SHOWN = {
  duration: "5 min",
  run: { received_flows: true },
  ports: { A: "veth-a", B: "veth-b" },
  stream: [
    {
      name: "web",
      packet: "eth/vlan(id=7)/ipv4(src=198.18.0.1, dst=198.19.0.1, dscp=af21)/tcp(sport=1024, dport=443, flags=S)",
      size: 128,
      rate: "2 kpps",
      vary: [{ field: "tcp.sport", op: "increment", min: 1024, max: 65535 }],
    },
    { name: "voice", packet: "eth/ipv4(src=198.18.0.2, dst=198.19.0.2, dscp=ef)/udp(sport=4000, dport=4000)", size: 214, rate: "500 pps" },
    { name: "bulk", packet: "eth/ipv4(src=198.18.0.3, dst=198.19.0.3)/udp(sport=5001, dport=5001)", size: "imix", rate: "4 Mbps" },
  ].map((stream) => ({ ...stream, port: "A", latency: true })),
};

/** Steps in a namespace without interfaces, against a daemon without runs. */
const firstVisit = {
  async "a first visit makes a lab, loads an example and sends, in three clicks and a minute"(page) {
    const from = Date.now();
    let clicks = 0;
    const click = async (name) => {
      clicks += 1;
      await page.getByRole("button", { name, exact: true }).click();
    };
    await page.goto(url);
    await click("Create a lab");
    await page.getByRole("row", { name: /veth-a/ }).getByText("free").waitFor();
    await click("Load streams");
    // A visit to another page undoes no step.
    await page.goto(`${url}/#/streams`);
    await page.getByText("ready", { exact: true }).waitFor();
    await page.goto(`${url}/#/attacks`);
    await page.getByRole("button", { name: "Start 2 streams" }).waitFor();
    assert.equal(await page.getByText("ready", { exact: true }).count(), 0, "no attack is ready");
    await page.goto(`${url}/#/ports`);
    if (shots) await page.screenshot({ path: `${shots}/first-steps.png` });
    await click("Start");
    await page.waitForURL(/#\/run\?id=/);
    await until(async () => (await figure(page, "B received")) > 0, "frames arrive, and are on the chart");
    assert.equal(clicks, 3);
    assert.ok(Date.now() - from < 60_000, `${Date.now() - from} ms`);
    assert.ok(counted("veth-b").rx > 0, "the interface counts them");
  },

  async "a lab in use is not removed, and a free one is"(page) {
    await page.goto(`${url}/#/ports`);
    await page.getByRole("row", { name: /veth-a/ }).getByText("web page").waitFor();
    assert.equal(await page.getByLabel("First steps", { exact: true }).count(), 0, "the steps are for a daemon without runs");
    await page.getByRole("button", { name: "Remove the lab" }).click();
    await page.getByText("veth-a is held by web page").first().waitFor();
    await page.goto(`${url}/#/run`);
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
    assert.match(page.url(), /#\/run\?id=/, "the page keeps the run that it showed");
    await page.goto(`${url}/#/reports`);
    await page.getByRole("heading", { name: "Reports", level: 1 }).waitFor();
    await page.goto(`${url}/#/nowhere`);
    await page.getByText("There is no page “nowhere”").waitFor();
    await page.goto(`${url}/#/ports`);
    await page.getByRole("row", { name: /veth-a/ }).getByText("free").waitFor();
    await page.getByRole("button", { name: "Remove the lab" }).click();
    await page.getByText("No usable interface").waitFor();
    assert.equal(execFileSync("ip", ["-j", "link", "show", "type", "veth"], { encoding: "utf8" }).trim(), "[]", "both interfaces are gone");
  },

  async "the help shows the steps again, and clients and servers run in memory"(page) {
    await page.keyboard.press("?");
    await page.getByRole("button", { name: "Show the first steps" }).click();
    const steps = page.getByLabel("First steps", { exact: true });
    await steps.getByRole("button", { name: "Use ports in memory" }).click();
    await steps.getByRole("button", { name: "Load clients and servers" }).click();
    await steps.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/#\/run\?id=/);
    const table = page.getByRole("table", { name: "Flows of each template" });
    await until(async () => Number((await table.getByRole("row", { name: /^web client/ }).locator('[data-label="Completed"]').textContent()).replace(/\D/g, "")) > 10, "flows complete");
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await page.getByRole("link", { name: "Report", exact: true }).waitFor();
  },

  async "the examples of streams and of flows are one mix, whatever the streams are called"(page) {
    await page.evaluate((draft) => localStorage.setItem("squall.draft", JSON.stringify(draft)), { ports: { A: "loop:0", B: "loop:0" }, stream: [{ name: "web", port: "A", packet: "eth/ipv4/udp", rate: "1 kpps" }] });
    await page.goto(`${url}/#/log`);
    await page.reload();
    await page.goto(`${url}/#/flows`);
    await page.getByRole("button", { name: "Load example" }).click();
    await page.getByRole("listbox", { name: "Templates" }).getByRole("option", { name: /^web 2/ }).waitFor();
    await page.getByText("ready", { exact: true }).waitFor();
  },
};

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
let failed = 0;
try {
  const page = await open(browser);
  const visits = rest.includes("--first-visit");
  if (only && !visits) await login(page);
  for (const [name, step] of Object.entries(visits ? firstVisit : steps)) {
    if (only && !new RegExp(only).test(name)) continue;
    const from = Date.now();
    try {
      await step(page);
      assert.deepEqual(errors.splice(0), [], "errors of the page");
      console.log(`ok      ${name} (${((Date.now() - from) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      const shown = await page.locator("body").innerText({ timeout: 2000 }).catch(String);
      console.log(`FAILED  ${name}: ${error.stack ?? error}\n  the page: ${shown.replace(/\s+/g, " ").slice(0, 1000)}`);
      if (shots) {
        mkdirSync(shots, { recursive: true });
        await page.screenshot({ path: `${shots}/failed-${failed}.png` }).catch(() => {});
      }
      // The next step starts without an open dialog.
      await page.goto("about:blank");
      await page.goto(`${url}/#/ports`);
    }
  }
  if (shots && !visits) {
    // The pictures are useful only with a run in progress.
    await page.goto(`${url}/#/log`);
    await page.evaluate((profile) => localStorage.setItem("squall.draft", JSON.stringify(profile)), SHOWN);
    await page.reload();
    await page.goto(`${url}/#/streams`);
    await page.getByText("ready", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/#\/run\?id=/);
    await sleep(7000);
    const slider = page.getByLabel("Rate of all streams");
    await slider.focus();
    for (let i = 0; i < 2; i++) await slider.press("PageDown");
    await sleep(4000);
    await picture(page);
  }
} finally {
  await browser.close();
}
process.exit(failed ? 1 : 0);
