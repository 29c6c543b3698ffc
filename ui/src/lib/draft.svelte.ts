// The profile that is being edited: streams, flows, replays, attacks and a capture; each page shows
// one kind. It is stored in this browser, and the daemon checks it after each change.

import { ApiError, linesOf, messageOf, post, problemText } from "./api";
import type { Checked } from "./generated";
import { nodes } from "./nodes.svelte";
import type { PageId } from "./route.svelte";
import { remembered, store } from "./session.svelte";
import { startAndShow } from "./start";
import type { Problem, Profile, Stream } from "./types";

/** The keys that all kinds of sources in a profile have in common. */
export interface Part {
  name?: string;
  enabled?: boolean;
  [key: string]: unknown;
}

/** Tables of the profile whose parts send: their page, the singular and plural of a part, and the
 * kind of frames that they send. */
export const KINDS = {
  stream: {
    page: "streams",
    title: "Streams",
    noun: "stream",
    one: "stream",
    many: "streams",
    sent: "streams",
  },
  template: {
    page: "flows",
    title: "Templates",
    noun: "template",
    one: "flow template",
    many: "flow templates",
    sent: "flows",
  },
  replay: {
    page: "replay",
    title: "Replays",
    noun: "replay",
    one: "replay",
    many: "replays",
    sent: "replays",
  },
  attack: {
    page: "attacks",
    title: "Attacks",
    noun: "attack",
    one: "attack",
    many: "attacks",
    sent: "attacks",
  },
} as const satisfies Record<
  string,
  Record<"title" | "noun" | "one" | "many" | "sent", string> & { page: PageId }
>;
export type Kind = keyof typeof KINDS;
export const KIND_IDS = Object.keys(KINDS) as Kind[];

export const counted = (n: number, kind: Kind): string =>
  `${n} ${n === 1 ? KINDS[kind].one : KINDS[kind].many}`;

/** Keys whose values name the ports of a part. */
const PORT_KEYS = ["port", "port2", "clients", "servers"];

const KEY = "squall.draft";

export const EXAMPLE: Profile = {
  duration: "60 s",
  ports: { A: "loop:0", B: "loop:0" },
  stream: [
    {
      name: "syn",
      port: "A",
      packet: "eth/ipv4(src=198.18.0.1, dst=198.19.0.1)/tcp(sport=1024, dport=80, flags=S)",
      size: 128,
      rate: "1 kpps",
      latency: true,
      vary: [{ field: "tcp.sport", op: "increment", min: 1024, max: 65535 }],
    },
    {
      name: "bulk",
      port: "A",
      packet: "eth/ipv4(src=198.18.0.2, dst=198.19.0.2)/udp(sport=5001, dport=5001)",
      size: "imix",
      rate: "20 Mbps",
      latency: true,
    },
  ],
};

function kept(): Profile {
  try {
    const profile = JSON.parse(remembered(KEY, "null")) as Profile | null;
    if (profile && typeof profile === "object") return profile;
  } catch {
    // The stored draft is invalid: start from an empty one.
  }
  return structuredClone(EXAMPLE);
}

class Draft {
  profile = $state<Profile>(kept());
  problems = $state<Problem[]>([]);
  checking = $state(false);
  /** The reason why the check failed. */
  unchecked = $state<string | null>(null);
  starting = $state(false);
  /** The reason why the start failed. */
  refused = $state<string[]>([]);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #asked = 0;

  get streams(): Stream[] {
    return this.profile.stream ?? [];
  }

  get portNames(): string[] {
    return Object.keys(this.profile.ports ?? {});
  }

  /** Whether the profile has a port on this interface, or with this address. */
  uses(port: string): boolean {
    return Object.values(this.profile.ports ?? {}).some(
      (address) => String(address) === port || String(address).endsWith(`:${port}`),
    );
  }

  parts(kind: Kind): Part[] {
    return (this.profile[kind] as Part[] | undefined) ?? [];
  }

  /** Parts that are enabled. */
  enabled(kind: Kind): Part[] {
    return this.parts(kind).filter((part) => part.enabled !== false);
  }

  /** Whether runs of the draft capture received frames to a file. */
  get captures(): boolean {
    const capture = this.profile.run?.capture;
    return capture !== undefined && capture !== null;
  }

  get isEmpty(): boolean {
    return !this.captures && KIND_IDS.every((kind) => !this.parts(kind).length);
  }

  /** Whether runs of the draft have parts of several kinds. */
  get isMixed(): boolean {
    const kinds = KIND_IDS.filter((kind) => this.enabled(kind).length).length;
    return kinds + (this.captures ? 1 : 0) > 1;
  }

  /** Problems that belong to no field on any page. */
  get elsewhere(): Problem[] {
    return this.problems.filter(
      ({ path = "", message }) =>
        !/^(streams?|template|pool|replay|attack)\[|^(ports|flows)\./.test(path) &&
        !(path === "" && /^(app = |options\.|")/.test(message)),
    );
  }

  /** Stores the profile and has it checked. Call this from an effect that has read the profile. */
  changed(snapshot: string): void {
    // A value refused at the last start may be valid now.
    this.refused = [];
    store(KEY, snapshot);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.check(), 250);
  }

  async check(): Promise<void> {
    const asked = ++this.#asked;
    this.checking = true;
    try {
      const { problems } = await post<Checked>("/profiles/check", { profile: this.profile });
      if (asked === this.#asked) [this.problems, this.unchecked] = [problems, null];
    } catch (error) {
      if (asked === this.#asked) {
        this.problems = error instanceof ApiError ? error.details : [];
        this.unchecked = this.problems.length ? null : messageOf(error);
      }
    } finally {
      if (asked === this.#asked) this.checking = false;
    }
  }

  /** The problem at a path (`stream[0].rate`), or at a path below it. */
  at(path: string): string | undefined {
    return problemText(this.problems.find((problem) => inside(placeOf(problem), path)));
  }

  /** Like `at`, but falls back to a problem that mentions one of these values and either has no
   * path, or has the path of a pool that the daemon made from the values. */
  about(path: string, ...values: unknown[]): string | undefined {
    const words = values
      .flat()
      .filter((word) => word !== undefined && word !== "")
      .map((word) => JSON.stringify(String(word)));
    return (
      this.at(path) ??
      problemText(
        this.problems.find(
          ({ path = "", message }) =>
            (!path || path.startsWith("pool[")) && words.some((word) => message.includes(word)),
        ),
      )
    );
  }

  count(path: string): number {
    return this.problems.filter((problem) => inside(placeOf(problem), path)).length;
  }

  /** Whether the profile is the example, on any ports, or is empty. */
  get isExample(): boolean {
    const stream = JSON.stringify(EXAMPLE.stream);
    return this.isEmpty || JSON.stringify(this.profile.stream) === stream;
  }

  replace(profile: Profile): void {
    this.profile = profile;
    this.problems = [];
  }

  /** Adds a part under an unused name. Returns its index. */
  add(kind: Kind, part: Part): number {
    const parts = this.parts(kind);
    // Names are unique among all kinds, because reports and `after` identify parts by name alone.
    const names = KIND_IDS.flatMap((each) => this.parts(each).map(({ name }) => name));
    const name = free(part.name ?? KINDS[kind].one, names);
    this.#set(kind, [...parts, { ...part, name }]);
    return parts.length;
  }

  duplicate(kind: Kind, index: number): number {
    const part = this.parts(kind)[index];
    return part ? this.add(kind, $state.snapshot(part) as Part) : index;
  }

  remove(kind: Kind, index: number): void {
    this.#set(
      kind,
      this.parts(kind).filter((_, i) => i !== index),
    );
  }

  move(kind: Kind, index: number, by: number): void {
    const parts = [...this.parts(kind)];
    const [part] = parts.splice(index, 1);
    if (part) parts.splice(index + by, 0, part);
    this.#set(kind, parts);
  }

  #set(kind: Kind, parts: Part[]): void {
    if (parts.length) {
      this.profile[kind] = parts;
      return;
    }
    delete this.profile[kind];
    // `[flows]` and pools are unused without templates.
    if (kind === "template") {
      delete this.profile.flows;
      delete this.profile.pool;
    }
  }

  /** Sets a run option of the draft; `undefined` removes it. */
  option(key: string, value: unknown): void {
    const options = { ...this.profile.run };
    assign(options, key, value);
    if (Object.keys(options).length) this.profile.run = options;
    else delete this.profile.run;
  }

  renamePort(from: string, to: string): void {
    this.profile.ports = Object.fromEntries(
      Object.entries(this.profile.ports ?? {}).map(([name, address]) => [
        name === from ? to : name,
        address,
      ]),
    );
    const sending = (["stream", "replay", "attack"] as const).flatMap((kind) => this.parts(kind));
    for (const part of [...sending, (this.profile.flows ?? {}) as Part])
      for (const key of PORT_KEYS) if (part[key] === from) part[key] = to;
  }

  /** Starts a run of all parts, or of one kind. */
  async start(only?: Kind): Promise<void> {
    this.starting = true;
    this.refused = [];
    const kinds = only ? [only] : KIND_IDS;
    const profile = only ? this.#alone(only) : this.profile;
    const parts = kinds.flatMap((kind) => this.enabled(kind));
    const attacks = kinds.includes("attack") && this.enabled("attack").length > 0;
    const labels = attacks && profile.run?.labels === undefined ? { labels: labelsName() } : {};
    try {
      await startAndShow({
        ...nodes.asked,
        profile,
        name: title(parts.map(({ name }) => name ?? "")),
        options: labels,
      });
    } catch (error) {
      this.refused = linesOf(error);
      void this.check();
    } finally {
      this.starting = false;
    }
  }

  #alone(only: Kind): Profile {
    const profile = $state.snapshot(this.profile) as Profile;
    for (const kind of KIND_IDS) if (kind !== only) delete profile[kind];
    if (only !== "template") {
      delete profile.flows;
      delete profile.pool;
    }
    return profile;
  }
}

/** A unique name for a run's label file, so no run overwrites that of another. */
const labelsName = (): string =>
  `labels-${new Date().toISOString().slice(0, 19).replace(/[-:]/g, "").replace("T", "-")}.csv`;

const title = (names: string[]): string =>
  names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");

export const free = (wanted: string, names: (string | undefined)[]): string => {
  let name = wanted;
  for (let n = 2; names.includes(name); n++) name = `${wanted.replace(/ \d+$/, "")} ${n}`;
  return name;
};

/** The path of a problem. The daemon may use the plural of the table. */
const placeOf = (problem: Problem): string => (problem.path ?? "").replace(/^streams\b/, "stream");

const inside = (place: string, path: string): boolean =>
  place === path || (place.startsWith(path) && /^[.[]/.test(place.slice(path.length)));

export const draft = new Draft();

/** Sets a key, or removes it if the value is empty. */
export function assign(target: Record<string, unknown>, key: string, value: unknown): void {
  if (value === undefined || value === "" || (typeof value === "number" && Number.isNaN(value)))
    delete target[key];
  else target[key] = value;
}

/** Like `assign`, for the text of an input field. */
export const typed = (part: Part, key: string, text: string): void =>
  assign(part, key, scalar(text));

/** Converts numeric text to a number; leaves other text unchanged, because the profile accepts
 * both. */
export function scalar(text: string): string | number | undefined {
  const trimmed = text.trim();
  if (!trimmed) return undefined;
  return /^\d{1,15}$/.test(trimmed) ? Number(trimmed) : trimmed;
}
