// The daemon's responses, under the names that the page uses. Their fields, and profiles, are
// generated; this file has the types without a schema, and types that are looser than their schema.

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
  Flows as FlowsPart,
  HeaderInfo as Header,
  HostDetail,
  HostEventRow,
  HostLeaseRow,
  HostPage,
  HostRow,
  Info,
  Inventory,
  LayerView as Layer,
  LeaseRow as Lease,
  PacketRow as CapturedPacket,
  PacketView as Parsed,
  Pool,
  PortRow as Port,
  Profile,
  Report,
  RuleOutcome as SolvedRule,
  RouterGroupReport,
  RouterProtocolReport,
  RouterReport,
  RouterStepReport,
  RunRow as Run,
  Sample,
  Stream,
  Template,
  Estimate as TestEstimate,
  State as RunState,
  Vary,
} from "./generated";
import type * as api from "./generated";

/** The verdict of a report; or that of a run, whose reasons are plain text. */
export type Verdict = api.Verdict | api.RunVerdict;

/** A setting of a method (JSON schema), with the keywords that its form uses. */
export interface SettingSchema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  items?: SettingSchema;
  enum?: unknown[];
  oneOf?: { const?: unknown; description?: string }[];
}

export interface Method extends Pick<api.MethodInfo, "name" | "title" | "wants_flows"> {
  settings: {
    properties: Record<string, SettingSchema>;
    $defs?: Record<string, SettingSchema>;
  };
  defaults: Record<string, unknown>;
  quick: Record<string, unknown>;
}

/** The result of a standard test: schemas/test.schema.json. */
export interface Outcome {
  title: string;
  verdict: { status: string; text: string[] };
  tables: { title: string; columns: string[]; rows: string[][] }[];
  notes: string[];
  command: string;
}

/** A problem in a profile. An error has fewer fields. */
export type Problem = Partial<api.Problem> & Pick<api.Problem, "message">;

/** The alerts of an engine compared to the attacks sent. */
export interface Score {
  labels: number;
  alerts: number;
  /** Alerts whose time or addresses match no label. */
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
