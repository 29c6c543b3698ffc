// Thresholds above which a figure is red. They are stored in this browser and have no effect on
// runs; `--fail-if` makes runs fail.

import { remembered, store } from "./session.svelte";
import { count, nanos, ratio } from "./units";

const KEY = "squall.thresholds";

interface Kind {
  title: string;
  unit: string;
  /** Factor from the displayed unit to the unit of the figure. */
  scale: number;
  format: (value: number | null | undefined) => string;
  /** The default. */
  preset?: number;
}

export const KINDS = {
  loss: { title: "Lost packets above", unit: "%", scale: 0.01, format: ratio, preset: 0 },
  delay: { title: "Delay p99 above", unit: "µs", scale: 1e3, format: nanos },
  failed: { title: "Failed flows above", unit: "%", scale: 0.01, format: ratio, preset: 0 },
  unbegun: { title: "Flows not begun above", unit: "", scale: 1, format: count, preset: 0 },
  setup: { title: "Set-up time p99 above", unit: "ms", scale: 1e6, format: nanos },
  answer: { title: "Answer time p99 above", unit: "ms", scale: 1e6, format: nanos },
} as const satisfies Record<string, Kind>;

export type ThresholdId = keyof typeof KINDS;
export const IDS = Object.keys(KINDS) as ThresholdId[];

type Chosen = Partial<Record<ThresholdId, number | null>>;

function kept(): Chosen {
  try {
    return JSON.parse(remembered(KEY, "{}")) as Chosen;
  } catch {
    return {};
  }
}

class Thresholds {
  #chosen = $state<Chosen>(kept());

  /** The threshold in the displayed unit; null: none. */
  of(id: ThresholdId): number | null {
    const chosen = this.#chosen[id];
    if (chosen !== undefined) return chosen;
    const kind: Kind = KINDS[id];
    return kind.preset ?? null;
  }

  set(id: ThresholdId, value: number | null): void {
    this.#chosen = { ...this.#chosen, [id]: value };
    store(KEY, JSON.stringify(this.#chosen));
  }

  reset(): void {
    this.#chosen = {};
    store(KEY, "{}");
  }

  over(id: ThresholdId, value: number | null | undefined): boolean {
    const limit = this.of(id);
    return limit !== null && typeof value === "number" && value > limit * KINDS[id].scale;
  }

  /** Why a figure is red, as a tooltip and for screen readers. */
  why(id: ThresholdId, value: number | null | undefined): string | undefined {
    if (!this.over(id, value)) return undefined;
    const kind: Kind = KINDS[id];
    return `over the threshold of ${kind.format((this.of(id) ?? 0) * kind.scale)}`;
  }
}

export const thresholds = new Thresholds();
