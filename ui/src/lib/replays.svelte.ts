// Replays in the draft.

import { assign, draft, scalar } from "./draft.svelte";
import type { Replay } from "./generated";

export const replaysOf = (): Replay[] => draft.parts("replay");

export const filesOf = ({ files }: Replay): string[] => (files ? [files].flat() : []);

/** Ways to define the speed: the profile's key and the unit. */
export const SPEEDS = {
  captured: { title: "as captured", key: undefined, amount: "" },
  multiplier: { title: "multiplier", key: "multiplier", amount: "Multiplier" },
  pps: { title: "frames per second", key: "rate", amount: "Frames per second" },
  mbps: { title: "Mb/s", key: "mbps", amount: "Mb/s" },
  rate: { title: "another rate", key: "rate", amount: "Rate" },
  ramp: { title: "ramp", key: "ramp", amount: "Ramp" },
  max: { title: "as fast as possible", key: "rate", amount: "" },
} as const;
export type Speed = keyof typeof SPEEDS;

const PPS = /^\s*([\d.]+)\s*pps\s*$/;

export function speedOf(replay: Replay): Speed {
  const { rate } = replay;
  if (rate === "max") return "max";
  if (typeof rate === "string" && PPS.test(rate)) return "pps";
  return (
    (["rate", "multiplier", "mbps", "ramp"] as const).find((key) => key in replay) ?? "captured"
  );
}

/** The value shown in the text field; for frames per second, only the number. */
export function amountOf(replay: Replay): string {
  const speed = speedOf(replay);
  const { key } = SPEEDS[speed];
  const value = String((key && replay[key]) ?? "");
  return speed === "pps" ? (PPS.exec(value)?.[1] ?? "") : value;
}

const FIRST: Partial<Record<Speed, string | number>> = {
  multiplier: 2,
  pps: "1000 pps",
  mbps: 10,
  rate: "1 kpps",
  ramp: "1 kpps..10 kpps:10 s",
  max: "max",
};

export function setSpeed(replay: Replay, speed: Speed): void {
  for (const key of ["multiplier", "rate", "mbps", "ramp"]) delete replay[key];
  const { key } = SPEEDS[speed];
  if (key) assign(replay, key, FIRST[speed]);
}

export function setAmount(replay: Replay, text: string): void {
  const speed = speedOf(replay);
  const { key } = SPEEDS[speed];
  // A plain number keeps the selected unit; a number with a unit is a rate.
  if (key)
    assign(
      replay,
      key,
      speed === "pps" && /^[\d.]+$/.test(text.trim()) ? `${text.trim()} pps` : scalar(text),
    );
}

export function addReplay(file?: string): number {
  const port = draft.portNames[0];
  return draft.add("replay", {
    name: "replay 1",
    ...(file ? { files: file } : {}),
    ...(port ? { port } : {}),
  });
}
