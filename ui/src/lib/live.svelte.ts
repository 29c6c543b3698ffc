// Live runs, over a single WebSocket: their states, and rates as series for charts.

import { BASE, get, post } from "./api";
import { attempt } from "./asked.svelte";
import type { Stats } from "./generated";
import { servers, socketTo } from "./servers.svelte";
import { session } from "./session.svelte";
import type { Line } from "../parts/Chart.svelte";
import type { Lease, LoggedRequest, Report, Run, Sample } from "./types";

/** Maximum number of points of a series. When it is full, every second point is removed, so a whole
 * day fits on a chart. */
const POINTS = 1200;

export interface PortLine {
  name: string;
  tx_pps: number[];
  tx_bps: number[];
  rx_pps: number[];
  rx_bps: number[];
  tx_packets: number;
  rx_packets: number;
}

export interface StreamLine {
  name: string;
  tx_pps: number[];
  rx_pps: number[];
  p50: (number | null)[];
  p99: (number | null)[];
  tx_packets: number;
  rx_packets: number;
  lost: number;
  max: number | null;
}

/** Progress of a source on its schedule. */
export interface SourceLine {
  name: string;
  unit: string;
  due: number;
  sent: number;
  lag_s: number;
  isLate: boolean;
}

/** A group of hosts, with its hosts by state over time. */
export interface HostGroupLine {
  name: string;
  hosts: number;
  started: number;
  states: Record<string, number[]>;
}

/** Arrays that are not reactive: an effect that draws a series depends on `version`. */
export interface Series {
  t: number[];
  ports: PortLine[];
  streams: StreamLine[];
  /** Sources with a schedule; only while the run is live. */
  sources: SourceLine[];
  /** Groups of hosts; only while the run is live, from when the page was opened on. */
  hosts: HostGroupLine[];
}

const portLine = (name: string): PortLine => ({
  name,
  tx_pps: [],
  tx_bps: [],
  rx_pps: [],
  rx_bps: [],
  tx_packets: 0,
  rx_packets: 0,
});
const streamLine = (name: string): StreamLine => ({
  name,
  tx_pps: [],
  rx_pps: [],
  p50: [],
  p99: [],
  tx_packets: 0,
  rx_packets: 0,
  lost: 0,
  max: null,
});

/** The series of a report, and its final totals. */
export function seriesOf(report: Report): Series {
  const series: Series = {
    t: [],
    ports: report.ports.map((port) => ({
      ...portLine(port.name),
      tx_packets: port.tx.packets,
      rx_packets: port.rx.packets,
    })),
    streams: report.streams.map((stream) => ({
      ...streamLine(stream.name),
      tx_packets: stream.tx_packets,
      rx_packets: stream.rx?.packets ?? 0,
      lost: stream.rx?.lost ?? 0,
      max: stream.rx?.latency_ns?.max ?? null,
    })),
    sources: [],
    hosts: [],
  };
  for (const sample of report.series) addSample(series, sample);
  return series;
}

function addSample(series: Series, sample: Sample): void {
  series.t.push(sample.t_s);
  series.ports.forEach((line, i) => {
    const at =
      sample.ports[i]?.name === line.name
        ? sample.ports[i]
        : sample.ports.find((p) => p.name === line.name);
    line.tx_pps.push(at?.tx_pps ?? 0);
    line.tx_bps.push(at?.tx_bps_l1 ?? 0);
    line.rx_pps.push(at?.rx_pps ?? 0);
    line.rx_bps.push(at?.rx_bps_l1 ?? 0);
  });
  const byName = new Map(sample.streams.map((stream) => [stream.name, stream]));
  series.streams.forEach((line, i) => {
    const at = sample.streams[i]?.name === line.name ? sample.streams[i] : byName.get(line.name);
    line.tx_pps.push(at?.tx_pps ?? 0);
    line.rx_pps.push(at?.rx_pps ?? 0);
    line.p50.push(at?.latency_p50_ns ?? null);
    line.p99.push(at?.latency_p99_ns ?? null);
  });
}

interface SampleRows {
  run: string;
  t_s: number;
  ports: number[][];
  streams: (number | null)[][];
  /** Absent in messages from older daemons. */
  sources?: [string, string, number, number, number, boolean][];
  hosts?: [string, number, number, Record<string, number>, boolean][];
}

type Message =
  | { type: "hello"; runs: Run[] }
  | { type: "run"; run: Run }
  | { type: "ended"; id: string }
  | { type: "names"; run: string; ports: string[]; streams: string[] }
  | ({ type: "sample" } & SampleRows)
  | { type: "leases"; leases: Lease[] }
  | { type: "log"; entries: LoggedRequest[] };

class Live {
  connected = $state(false);
  runs = $state<Record<string, Run>>({});
  leases = $state<Lease[]>([]);
  log = $state<LoggedRequest[]>([]);
  /** Increases with each sample, so charts are redrawn. */
  version = $state(0);
  #series = new Map<string, Series>();
  #socket: WebSocket | null = null;
  #wait = 500;
  #logged = false;

  /** Live runs, newest first. */
  active = $derived(
    Object.values(this.runs)
      .filter((run) => isLive(run))
      .sort((a, b) => (a.id < b.id ? 1 : -1)),
  );

  /** Sources of a run that have sent less than was due. */
  lagging(run: string): SourceLine[] {
    void this.version;
    return this.#series.get(run)?.sources.filter(({ isLate }) => isLate) ?? [];
  }

  series(run: string): Series | undefined {
    return this.#series.get(run);
  }

  open(): void {
    if (this.#socket) return;
    const socket = socketTo(
      servers.current,
      `${BASE}/watch?runs=all&every_ms=500${this.#logged ? "&log=1" : ""}`,
    );
    this.#socket = socket;
    socket.onopen = () => {
      this.connected = true;
      this.#wait = 500;
    };
    socket.onmessage = (event) => this.#take(JSON.parse(event.data as string) as Message);
    socket.onclose = () => {
      this.connected = false;
      if (this.#socket !== socket) return;
      this.#socket = null;
      // Find out whether the daemon has stopped, or requires its token again.
      void get("/runs?limit=1").catch(() => {});
      // Exponential backoff: a restarted daemon is found soon, and one that is down does not get
      // many requests.
      setTimeout(() => !session.loginNeeded && this.open(), this.#wait);
      this.#wait = Math.min(this.#wait * 2, 8000);
    };
  }

  close(): void {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  /** Log messages cost the daemon one message per request, so they are sent only to a page that
   * shows the log. */
  withLog(on: boolean): void {
    if (this.#logged === on) return;
    this.#logged = on;
    if (this.#socket) {
      this.close();
      this.open();
    }
  }

  put(run: Run): void {
    this.runs[run.id] = run;
  }

  #take(message: Message): void {
    switch (message.type) {
      case "hello":
        this.runs = Object.fromEntries(message.runs.map((run) => [run.id, run]));
        break;
      case "run":
        this.put(message.run);
        break;
      case "ended":
        void this.refresh(message.id);
        break;
      case "names":
        this.#named(message);
        break;
      case "sample":
        this.#sample(message);
        break;
      case "leases":
        this.leases = message.leases;
        break;
      case "log":
        this.log = [...message.entries, ...this.log].slice(0, 2000);
        break;
    }
  }

  /** Sends a command to a run; the daemon then sends the run's new row. */
  async act(id: string, what: "stop" | "pause" | "resume"): Promise<void> {
    await attempt(() => post(`/runs/${id}/${what}`));
    await this.refresh(id);
  }

  async refresh(id: string): Promise<void> {
    try {
      this.put(await get<Run>(`/runs/${id}`));
    } catch {
      delete this.runs[id];
    }
  }

  #named(names: { run: string; ports: string[]; streams: string[] }): void {
    const known = this.#series.get(names.run);
    if (
      known &&
      known.ports.length === names.ports.length &&
      known.streams.length === names.streams.length
    )
      return;
    const series: Series = {
      t: [],
      ports: names.ports.map(portLine),
      streams: names.streams.map(streamLine),
      sources: [],
      hosts: [],
    };
    this.#series.set(names.run, series);
    void this.#before(names.run, series);
  }

  /** Loads the samples from before this page was opened. */
  async #before(run: string, series: Series): Promise<void> {
    try {
      const { report } = await get<Stats>(`/runs/${run}/stats`);
      if (!report) return;
      const first = series.t[0] ?? Infinity;
      const earlier = report.series.filter((sample) => sample.t_s < first - 0.2).slice(-POINTS / 2);
      if (!earlier.length) return;
      const old: Series = {
        t: [],
        ports: series.ports.map((p) => portLine(p.name)),
        streams: series.streams.map((s) => streamLine(s.name)),
        sources: [],
        hosts: [],
      };
      for (const sample of earlier) addSample(old, sample);
      series.t.unshift(...old.t);
      // Earlier samples have no hosts.
      series.hosts
        .flatMap(({ states }) => Object.values(states))
        .forEach((values) => values.unshift(...old.t.map(() => 0)));
      const before = valuesOf(old);
      valuesOf(series).forEach((values, i) => values.unshift(...(before[i] ?? [])));
      this.version++;
    } catch {
      // If earlier samples are not available, the chart begins now.
    }
  }

  #sample(sample: SampleRows): void {
    const series = this.#series.get(sample.run);
    if (!series) return;
    const run = this.runs[sample.run];
    if (run) run.elapsed_s = sample.t_s;
    series.sources = (sample.sources ?? []).map(([name, unit, due, sent, lag_s, isLate]) => ({
      name,
      unit,
      due,
      sent,
      lag_s,
      isLate,
    }));
    if (series.t.length && sample.t_s <= (series.t.at(-1) ?? 0)) return;
    this.#hosts(series, sample);
    series.t.push(sample.t_s);
    const last = (of: number[]): number => of.at(-1) ?? 0;
    const ports = new Map(sample.ports.map((row) => [row[0] ?? 0, row]));
    series.ports.forEach((line, i) => {
      const row = ports.get(i);
      line.tx_pps.push(row?.[1] ?? last(line.tx_pps));
      line.tx_bps.push(row?.[2] ?? last(line.tx_bps));
      line.rx_pps.push(row?.[3] ?? last(line.rx_pps));
      line.rx_bps.push(row?.[4] ?? last(line.rx_bps));
      line.tx_packets = row?.[5] ?? line.tx_packets;
      line.rx_packets = row?.[6] ?? line.rx_packets;
    });
    const streams = new Map(sample.streams.map((row) => [row[0] ?? 0, row]));
    series.streams.forEach((line, i) => {
      const row = streams.get(i);
      line.tx_pps.push(row?.[1] ?? last(line.tx_pps));
      line.rx_pps.push(row?.[2] ?? last(line.rx_pps));
      line.tx_packets = row?.[3] ?? line.tx_packets;
      line.rx_packets = row?.[4] ?? line.rx_packets;
      line.lost = row?.[5] ?? line.lost;
      line.p50.push(row ? (row[6] ?? null) : (line.p50.at(-1) ?? null));
      line.p99.push(row ? (row[7] ?? null) : (line.p99.at(-1) ?? null));
      line.max = row?.[8] ?? line.max;
    });
    if (series.t.length > POINTS) thin(series);
    this.version++;
  }

  /** Adds the hosts by state. A state has no line before the first host was in it. */
  #hosts(series: Series, sample: SampleRows): void {
    for (const [name, hosts, started, states] of sample.hosts ?? []) {
      let group = series.hosts.find((known) => known.name === name);
      if (!group) {
        group = { name, hosts, started, states: {} };
        series.hosts.push(group);
      }
      [group.hosts, group.started] = [hosts, started];
      for (const state of Object.keys(states)) group.states[state] ??= series.t.map(() => 0);
      for (const [state, values] of Object.entries(group.states)) values.push(states[state] ?? 0);
    }
  }
}

/** All value arrays of a series, in a fixed order. */
const valuesOf = ({ ports, streams }: Series): (number | null)[][] => [
  ...ports.flatMap((line) => [line.tx_pps, line.tx_bps, line.rx_pps, line.rx_bps]),
  ...streams.flatMap((line) => [line.tx_pps, line.rx_pps, line.p50, line.p99]),
];

function thin(series: Series): void {
  const hosts = series.hosts.flatMap(({ states }) => Object.values(states));
  for (const values of [series.t, ...valuesOf(series), ...hosts]) {
    const half = values.filter((_, i) => i % 2 === 1);
    values.length = 0;
    (values as (number | null)[]).push(...half);
  }
}

/** Chart lines of the sent and received rates of the first ports. */
export const portLines = (series: Series | null, bits = false): Line[] =>
  (series?.ports ?? []).slice(0, 4).flatMap((port, i): Line[] => [
    { label: `${port.name} sent`, values: bits ? port.tx_bps : port.tx_pps, color: i * 2 },
    {
      label: `${port.name} received`,
      values: bits ? port.rx_bps : port.rx_pps,
      color: i * 2 + 1,
      dashed: true,
    },
  ]);

/** The kind of a run; for a mix, the kinds of its parts. */
export function kindOf({ kind, parts }: Run): string {
  return parts?.length ? `${kind} of ${parts.join(", ")}` : kind;
}

export const isLive = (run: Run): boolean =>
  run.state === "starting" ||
  run.state === "running" ||
  run.state === "paused" ||
  run.state === "stopping";

export const live = new Live();
