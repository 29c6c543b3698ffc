// Number formatting, as in the terminal: commas between thousands, a thin space before units, and
// only significant digits.

const THIN = "\u202f";

export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");
}

function scaled(value: number, unit: string, steps: string[], base = 1000): string {
  let step = 0;
  let rest = Math.abs(value);
  while (rest >= base * 0.9995 && step < steps.length - 1) {
    rest /= base;
    step += 1;
  }
  const digits = step === 0 && Number.isInteger(value) ? 0 : rest >= 100 ? 0 : rest >= 10 ? 1 : 2;
  return `${value < 0 ? "−" : ""}${rest.toFixed(digits)}${THIN}${steps[step]}${unit}`;
}

const known = (value: number | null | undefined): value is number =>
  value !== null && value !== undefined && Number.isFinite(value);

export const pps = (value: number | null | undefined): string =>
  known(value) ? scaled(round(value), "pps", ["", "k", "M", "G"]) : "–";
export const bps = (value: number | null | undefined): string =>
  known(value) ? scaled(round(value), "b/s", ["", "k", "M", "G", "T"]) : "–";
export const octets = (value: number | null | undefined): string =>
  known(value) ? scaled(value, "B", ["", "k", "M", "G", "T"]) : "–";
export const packets = (value: number | null | undefined): string =>
  known(value)
    ? Math.abs(value) < 1e6
      ? count(value)
      : scaled(value, "", ["", "k", "M", "G", "T"]).trimEnd()
    : "–";

/** Rounds a rate; rates below 100 per second keep decimals. */
const round = (value: number): number =>
  Math.abs(value) < 100 ? Math.round(value * 100) / 100 : Math.round(value);

export function nanos(value: number | null | undefined): string {
  if (!known(value)) return "–";
  return scaled(value, "s", ["n", "µ", "m", ""]);
}

/** Removes trailing zeros, for axes: 2 kpps, 1.5 kpps. */
export const short = (text: string): string =>
  text.replace(/(\.\d*?)0+(?=\u202f)/, "$1").replace(/\.(?=\u202f)/, "");

export function seconds(value: number | null | undefined): string {
  if (!known(value)) return "–";
  const whole = Math.floor(value);
  if (value < 60) return `${value.toFixed(1)}${THIN}s`;
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  const two = (n: number): string => n.toString().padStart(2, "0");
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

export function ratio(value: number | null | undefined): string {
  if (!known(value)) return "–";
  if (value === 0) return `0${THIN}%`;
  const percent = value * 100;
  return `${percent < 0.001 ? percent.toExponential(1) : percent.toFixed(percent < 1 ? 3 : 2)}${THIN}%`;
}

export function when(rfc3339: string | null | undefined): string {
  if (!rfc3339) return "–";
  const date = new Date(rfc3339);
  if (Number.isNaN(date.getTime())) return rfc3339;
  const today = new Date().toDateString() === date.toDateString();
  return today
    ? date.toLocaleTimeString("en-GB")
    : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })}`;
}

/** Converts "10 kpps" to frames/s; null for other units. */
export function asPps(rate: unknown): number | null {
  if (typeof rate === "number") return rate;
  const match = /^\s*([\d.]+)\s*([kMGm]?)pps\s*$/i.exec(String(rate));
  if (!match) return null;
  const scale: Record<string, number> = { "": 1, k: 1e3, m: 1e6, g: 1e9 };
  return Number(match[1]) * (scale[(match[2] ?? "").toLowerCase()] ?? 1);
}

/** A number with a fixed number of decimals, so that packet times align. */
export const decimals = (value: number | null | undefined, digits: number): string =>
  known(value) ? value.toFixed(digits) : "–";

/** The relative change from one value to another: +12.5 %. */
export function change(from: number, to: number): string {
  if (from === to) return "same";
  if (from === 0) return "new";
  const by = (to - from) / Math.abs(from);
  return `${by > 0 ? "+" : "−"}${Math.abs(by * 100).toFixed(1)}${THIN}%`;
}

/** The title of a figure, derived from the daemon's name with a unit: `loss_ratio` becomes Loss. */
export function titled(name: string): string {
  const words = name
    .replace(/_(s|ns)$/, "")
    .replace(/_ratio$/, "")
    .replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

const UNITS: Record<string, string> = {
  s: "s",
  ms: "ms",
  us: "µs",
  ns: "ns",
  bps: "b/s",
  fps: "frames/s",
};

/** The label of a number field: `trial_s` becomes Trial (s). */
export function labelled(name: string): string {
  const [, plain, unit] = /^(.*)_(s|ms|us|ns|bps|fps)$/.exec(name) ?? [];
  const title = titled(plain ?? name).replace(/\b(cps|tcp|tls|udp|https?)\b/gi, (word) =>
    word.toUpperCase(),
  );
  return unit ? `${title} (${UNITS[unit]})` : title;
}
