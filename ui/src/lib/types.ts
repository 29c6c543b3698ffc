// What the daemon answers, by the names that the page has for it. What those answers hold is
// generated; here is what has no schema, or is looser than its own.

export type {
  Conversation,
  ConversationPage,
  Distribution,
  Endpoint,
  EndpointPage,
  Entry as LoggedRequest,
  FieldInfo as HeaderField,
  FieldView as LayerField,
  FileRow as StoredFile,
  HeaderInfo as Header,
  Info,
  Inventory,
  LayerView as Layer,
  LeaseRow as Lease,
  PacketRow as CapturedPacket,
  PacketView as Parsed,
  PortRow as Port,
  Report,
  RuleOutcome as SolvedRule,
  RunRow as Run,
  Sample,
  Estimate as TestEstimate,
  State as RunState,
} from "./generated";
import type * as api from "./generated";

/** Of a report, or of a run, which has its reasons as texts. */
export type Verdict = api.Verdict | api.RunVerdict;

/** A setting of a method, as far as its form needs it (JSON schema). */
export interface SettingSchema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  items?: SettingSchema;
  enum?: unknown[];
  oneOf?: { const?: unknown }[];
}

export interface Method extends Pick<api.About, "name" | "title" | "wants_flows"> {
  settings: {
    properties: Record<string, SettingSchema>;
    $defs?: Record<string, SettingSchema>;
  };
  defaults: Record<string, unknown>;
}

/** What a standard test found: schemas/test.schema.json. */
export interface Outcome {
  title: string;
  verdict: { status: string; text: string[] };
  tables: { title: string; columns: string[]; rows: string[][] }[];
  notes: string[];
  command: string;
}

/** Of a profile; or what an error says, which has less. */
export type Problem = Partial<api.Problem> & Pick<api.Problem, "message">;

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
  duration?: Scalar;
  after?: string;
  self_start?: boolean;
  next?: unknown;
  latency?: boolean;
  late?: string;
  enabled?: boolean;
  vary?: Vary[];
  [key: string]: unknown;
}

export interface Pool {
  name?: string;
  addresses?: string | string[];
  ports?: Scalar;
  order?: string;
  [key: string]: unknown;
}

export interface Template {
  name?: string;
  clients?: string | string[];
  servers?: string | string[];
  listen?: Scalar;
  app?: string;
  options?: Record<string, Scalar>;
  client?: string[];
  server?: string[];
  cps?: Scalar;
  users?: Scalar;
  weight?: Scalar;
  think?: Scalar;
  tls?: unknown;
  enabled?: boolean;
  [key: string]: unknown;
}

export interface FlowsPart {
  clients?: string;
  servers?: string;
  [key: string]: unknown;
}

export interface Profile {
  seed?: Scalar;
  duration?: Scalar;
  packets?: Scalar;
  octets?: Scalar;
  ports?: Record<string, unknown>;
  stream?: Stream[];
  flows?: FlowsPart;
  pool?: Pool[];
  template?: Template[];
  run?: Record<string, unknown>;
  [key: string]: unknown;
}
