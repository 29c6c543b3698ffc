// Baselines of counters: after a "clear", this page shows only the increase. The daemon's counters
// and its report are not reset.

import { SvelteMap } from "svelte/reactivity";

export interface Counts {
  ports: { tx: number; rx: number }[];
  streams: { tx: number; rx: number; lost: number }[];
  /** Counters of flows, by template and side. */
  flows: Record<string, FlowCounts>;
  at: Date;
}

export interface FlowCounts {
  attempted: number;
  completed: number;
  failed: Record<string, number>;
  not_begun: Record<string, number>;
}

/** Baselines by run, kept until the page is closed. */
export const baselines = new SvelteMap<string, Counts>();

/** The increase. A counter below its baseline has restarted at 0. */
export const since = (now: number, then: number | undefined): number =>
  now >= (then ?? 0) ? now - (then ?? 0) : now;

export function reasonsSince(
  now: Record<string, number>,
  then: Record<string, number> | undefined,
): Record<string, number> {
  const rest = Object.entries(now).map(([name, n]) => [name, since(n, then?.[name])] as const);
  return Object.fromEntries(rest.filter(([, n]) => n > 0));
}
