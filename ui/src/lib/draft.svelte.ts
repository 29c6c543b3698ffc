// The profile that is being edited. It is kept in this browser, and checked by the daemon as it
// changes.

import { ApiError, messageOf, post, told } from "./api";
import { remembered, store } from "./session.svelte";
import type { Problem, Profile, Stream } from "./types";

const KEY = "squall.draft";

export const EXAMPLE: Profile = {
  duration: "60 s",
  ports: { A: "loop:0", B: "loop:0" },
  stream: [
    {
      name: "web",
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
    // What was kept is of no use: begin anew.
  }
  return structuredClone(EXAMPLE);
}

interface Checked {
  ok: boolean;
  problems: Problem[];
  profile: Profile | null;
  summary?: unknown;
}

class Draft {
  profile = $state<Profile>(kept());
  problems = $state<Problem[]>([]);
  checking = $state(false);
  /** Why it could not be checked. */
  unchecked = $state<string | null>(null);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #asked = 0;

  get streams(): Stream[] {
    return this.profile.stream ?? [];
  }

  get portNames(): string[] {
    return Object.keys(this.profile.ports ?? {});
  }

  /** To be called from an effect that has looked at the profile. */
  changed(snapshot: string): void {
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

  /** What is wrong at a place: `stream[0].rate`; also with what is inside of it. */
  at(path: string): string | undefined {
    return told(this.problems.find((problem) => inside(placeOf(problem), path)));
  }

  /** The same; or what is wrong with these words, where the daemon names them and no place, or that
   * of a pool that it made of them. */
  about(path: string, ...values: unknown[]): string | undefined {
    const words = values
      .flat()
      .filter((word) => word !== undefined && word !== "")
      .map((word) => JSON.stringify(String(word)));
    return (
      this.at(path) ??
      told(
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

  replace(profile: Profile): void {
    this.profile = profile;
    this.problems = [];
  }

  add(stream: Stream): number {
    const names = new Set(this.streams.map(({ name }) => name));
    const wanted = stream.name ?? "stream";
    let name = wanted;
    for (let n = 2; names.has(name); n++) name = `${wanted.replace(/ \d+$/, "")} ${n}`;
    this.profile.stream = [...this.streams, { ...stream, name }];
    return this.streams.length - 1;
  }

  duplicate(index: number): number {
    const stream = this.streams[index];
    return stream ? this.add($state.snapshot(stream) as Stream) : index;
  }

  remove(index: number): void {
    this.profile.stream = this.streams.filter((_, i) => i !== index);
  }

  move(index: number, by: number): void {
    const streams = [...this.streams];
    const [stream] = streams.splice(index, 1);
    if (stream) streams.splice(index + by, 0, stream);
    this.profile.stream = streams;
  }
}

/** The daemon may name the table in the plural. */
const placeOf = (problem: Problem): string => (problem.path ?? "").replace(/^streams\b/, "stream");

const inside = (place: string, path: string): boolean =>
  place === path || (place.startsWith(path) && /^[.[]/.test(place.slice(path.length)));

export const draft = new Draft();

/** Keys with nothing in them are left out of what is sent. */
export function assign(target: Record<string, unknown>, key: string, value: unknown): void {
  if (value === undefined || value === "" || (typeof value === "number" && Number.isNaN(value)))
    delete target[key];
  else target[key] = value;
}

/** Text that is a number becomes one; all else stays text, as the profile takes both. */
export function scalar(text: string): string | number | undefined {
  const trimmed = text.trim();
  if (!trimmed) return undefined;
  return /^\d{1,15}$/.test(trimmed) ? Number(trimmed) : trimmed;
}
