// Counters at the time when they were cleared on this page, which shows only the difference. The
// daemon does not reset its counters, and its report has all of them.

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

/** Cleared counters by run, until the browser is closed. */
export const baselines = new SvelteMap<string, Counts>();

/** The difference; a counter below its earlier value has restarted at 0. */
export const since = (now: number, then: number | undefined): number =>
  now >= (then ?? 0) ? now - (then ?? 0) : now;

export function reasonsSince(
  now: Record<string, number>,
  then: Record<string, number> | undefined,
): Record<string, number> {
  const rest = Object.entries(now).map(([name, n]) => [name, since(n, then?.[name])] as const);
  return Object.fromEntries(rest.filter(([, n]) => n > 0));
}
