// What the daemon answers: /squall/v1, see docs/guide/server.md and /squall/v1/openapi.json.

export interface Problem {
  line?: number | null;
  column?: number | null;
  /** Where in the profile: `stream[0].rate`. */
  path?: string | null;
  message: string;
  details?: string[];
}

export interface Info {
  name: string;
  version: string;
  started: string;
  uptime_s: number;
  token_required: boolean;
  authorized: boolean;
  https: string | null;
  grpc: string | null;
  lease_s: number;
  otg?: { api_spec_version: string };
}

export interface PortLease {
  id: string;
  owner: string;
  expires_s: number | null;
}

export interface Port {
  address: string;
  interface: string | null;
  kind: string;
  state: "up" | "down" | "unknown";
  mac: string | null;
  mtu: number | null;
  speed_bps: number | null;
  backends: string[];
  /** Of the interface, since it is there, whoever used it. */
  counters?: Record<
    | "tx_packets"
    | "tx_octets"
    | "tx_errors"
    | "tx_dropped"
    | "rx_packets"
    | "rx_octets"
    | "rx_errors"
    | "rx_dropped",
    number
  > | null;
  lease: PortLease | null;
  run: string | null;
  note: string;
}

export interface Lease {
  id: string;
  owner: string;
  ports: string[];
  ttl_s: number;
  expires_s: number | null;
}

export type RunState =
  "starting" | "running" | "paused" | "stopping" | "done" | "failed" | "interrupted";

export interface Verdict {
  valid: boolean;
  status?: "valid" | "not-valid" | "interrupted";
  ended_by?: string;
  /** Of a report with a code; of a run as text alone. */
  reasons: ({ code: string; text: string; hint?: string } | string)[];
}

export interface Run {
  id: string;
  name: string;
  kind: string;
  state: RunState;
  verdict: Verdict | null;
  passed: boolean | null;
  error: string | null;
  note?: string | null;
  owner: string;
  lease: string | null;
  started: string;
  ended: string | null;
  elapsed_s: number;
  /** All rates are so many times those of the profile; null: they come to a total that was asked for. */
  mult: number | null;
  duration_s: number | null;
  ports: { name: string; address: string }[];
  streams: number;
}

export interface Distribution {
  count: number;
  min: number;
  mean: number;
  stddev: number;
  p50: number;
  p90: number;
  p99: number;
  p999: number;
  max: number;
  /** `[lower edge, upper edge, count]`, ascending. */
  bins: [number, number, number][];
}

export interface StreamRx {
  ports: string[];
  packets: number;
  octets: number;
  lost: number;
  loss_ratio: number;
  duplicates: number;
  reordered: number;
  latency_ns?: Distribution | null;
  ipdv_ns?: Distribution | null;
  arrival_gap_ns?: Distribution | null;
  jitter_ns?: number | null;
}

export interface StreamReport {
  name: string;
  port: string;
  group?: string | null;
  tx_packets: number;
  tx_octets: number;
  tx_pps: number;
  asked_pps?: number | null;
  not_sent: Record<string, number>;
  departure_error_ns?: Distribution | null;
  rx?: StreamRx | null;
}

export interface Direction {
  packets: number;
  octets: number;
  pps: number;
  bps_l1: number;
  bps_l2: number;
}

export interface PortReport {
  name: string;
  address: string;
  timestamps: string;
  tx: Direction & {
    errors: number;
    not_sent: Record<string, number>;
    blocked_s: number;
    departure_error_ns?: Distribution | null;
  };
  rx: Direction & { unsigned_packets: number; drops: Record<string, number> };
  interface?: Record<string, number> | null;
  /** When the link went down and came up. */
  link_events?: { t_s: number; up: boolean }[];
}

export interface Sample {
  t_s: number;
  ports: { name: string; tx_pps: number; tx_bps_l1: number; rx_pps: number; rx_bps_l1: number }[];
  streams: {
    name: string;
    tx_pps: number;
    rx_pps: number;
    lost: number;
    latency_p50_ns?: number | null;
    latency_p99_ns?: number | null;
  }[];
}

export interface Report {
  schema: string;
  command: string;
  squall_version: string;
  started: string;
  duration_s: number;
  seed: number;
  verdict: Verdict;
  host: { name: string; cpu_model: string; cpus: number; kernel: string };
  ports: PortReport[];
  streams: StreamReport[];
  series: Sample[];
  notes: string[];
  capture?: Record<string, unknown> | null;
  replay?: Record<string, unknown> | null;
  load?: Record<string, unknown> | null;
  attacks?: Record<string, unknown>[];
  cpu: { user_s: number; system_s: number; per_mpkt_s: number | null };
  memory: { peak_rss_octets: number };
}

export interface HeaderField {
  name: string;
  title: string;
  bits: number | null;
  kind: string;
  default: string | number | null;
  min?: string | number | null;
  max?: string | number | null;
  unit?: string | null;
  help?: string | null;
  auto?: boolean;
  names?: { name: string; value: number; help: string }[];
  aliases?: string[];
}

export interface Header {
  name: string;
  title: string;
  layer: number;
  fields: HeaderField[];
  follows: string[];
}

export interface LayerField {
  name: string;
  title: string;
  /** As a variation names it: `vlan[1].id`. */
  path: string;
  value: unknown;
  text: string;
  bit_offset: number;
  bits: number;
  kind: string;
  /** It is filled in. */
  auto: boolean;
  /** The packet text says what it holds. */
  set: boolean;
  unit: string;
  help: string;
}

export interface Layer {
  /** `payload` for octets that no layer speaks of, `padding` for those behind its end. */
  name: string;
  title: string;
  /** As packet text has it; empty if it does not. */
  text: string;
  payload: boolean;
  offset: number;
  length: number;
  fields: LayerField[];
}

export interface Parsed {
  packet: string;
  hex: string;
  length: number;
  layers: Layer[];
  problems: Problem[];
  notes?: string[];
}

export interface StoredFile {
  name: string;
  size: number;
  modified: string;
  kind: "capture" | "rules" | "profile" | "other";
}

export interface CapturedPacket {
  n: number;
  t_s: number;
  len: number;
  source: string;
  destination: string;
  protocol: string;
  info: string;
}

export interface SolvedRule {
  sid: number;
  msg: string;
  solved: boolean;
  /** Where not: a word that they are grouped by, and why. */
  reason: string | null;
  why: string | null;
  protocol: string;
  frames: number;
  buffers: string[];
}

/** What an engine alerted on, held against what was sent. */
export interface Score {
  labels: number;
  alerts: number;
  /** Alerts of no labelled time and address. */
  outside: number;
  alerts_files: { path: string; bad: number; errors: string[] }[];
  counts: {
    attacks: number;
    hit: number;
    missed: number;
    short: number;
    near_misses: number;
    near_misses_alerted: number;
    benign: number;
    benign_alerted: number;
    duplicates: number;
  };
  rates: Record<
    "detection" | "precision" | "f1" | "accuracy" | "false_positive" | "benign_false_positive",
    number | null
  >;
  latency_from_end: { count: number; median_ns: number; p99_ns: number } | null;
  rules: {
    sid: number;
    msg: string;
    attacks: number;
    hit: number;
    missed: number;
    near_misses: number;
    near_misses_alerted: number;
    detection: number | null;
    precision: number | null;
  }[];
}

export interface LoggedRequest {
  t: string;
  method: string;
  path: string;
  status: number;
  ms: number;
  peer: string;
  user_agent: string | null;
  octets_in: number;
  octets_out: number;
}

// A profile as an object: the keys of the file (schemas/profile.schema.json).

export type Scalar = string | number | boolean;

export interface Vary {
  name?: string;
  field?: string;
  offset?: number;
  octets?: number;
  mask?: Scalar;
  op: string;
  min?: Scalar;
  max?: Scalar;
  init?: Scalar;
  step?: Scalar;
  values?: Scalar[];
  weights?: number[];
  limit?: Scalar;
  seed?: Scalar;
  path?: string;
  after?: string;
  fields?: string[];
  ip_min?: Scalar;
  ip_max?: Scalar;
  port_min?: Scalar;
  port_max?: Scalar;
}

export interface Stream {
  name?: string;
  port?: string;
  group?: string;
  packet?: string;
  hex?: string;
  pcap?: string;
  size?: unknown;
  rate?: Scalar;
  departures?: unknown;
  mode?: unknown;
  start_delay?: Scalar;
  self_start?: boolean;
  next?: unknown;
  latency?: boolean;
  late?: string;
  enabled?: boolean;
  vary?: Vary[];
  [key: string]: unknown;
}

export interface Profile {
  seed?: Scalar;
  duration?: Scalar;
  packets?: Scalar;
  octets?: Scalar;
  ports?: Record<string, unknown>;
  stream?: Stream[];
  [key: string]: unknown;
}
