// Parses packet text (docs/reference/packets.md) just enough to set one field; everything else is
// done by the daemon.

import type { Layer } from "./types";

export interface TextLayer {
  name: string;
  /** Undefined for a positional argument, as in `text("hello")`. */
  args: { key?: string; value: string }[];
}

/** Splits at `separator`, except inside brackets and quotes. */
function split(text: string, separator: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let quoted = false;
  let from = 0;
  for (let at = 0; at < text.length; at++) {
    const c = text[at];
    if (quoted) {
      if (c === "\\") at++;
      else if (c === '"') quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === "(" || c === "[") depth++;
    else if (c === ")" || c === "]") depth--;
    else if (c === separator && depth === 0) {
      parts.push(text.slice(from, at));
      from = at + 1;
    }
  }
  parts.push(text.slice(from));
  return parts.map((part) => part.trim());
}

export function layersOf(packet: string): TextLayer[] {
  if (!packet.trim()) return [];
  return split(packet, "/").map((part) => {
    const open = part.indexOf("(");
    if (open < 0) return { name: part, args: [] };
    const inside = part.slice(open + 1, part.lastIndexOf(")")).trim();
    const args = inside
      ? split(inside, ",").map((arg) => {
          const [key, ...rest] = split(arg, "=");
          return rest.length ? { key: key ?? "", value: rest.join("=") } : { value: arg };
        })
      : [];
    return { name: part.slice(0, open).trim(), args };
  });
}

export function textOf(layers: TextLayer[]): string {
  return layers
    .map(({ name, args }) =>
      args.length
        ? `${name}(${args.map((a) => (a.key === undefined ? a.value : `${a.key}=${a.value}`)).join(", ")})`
        : name,
    )
    .join("/");
}

/** Sets a field of the layer at `index`; null resets it to its default. */
export function withField(
  packet: string,
  index: number,
  field: string,
  value: string | null,
): string {
  const layers = layersOf(packet);
  const layer = layers[index];
  if (!layer) return packet;
  const at = layer.args.findIndex((arg) => arg.key === field);
  if (value === null) layer.args = layer.args.filter((arg) => arg.key !== field);
  else if (at >= 0) layer.args[at] = { key: field, value };
  else layer.args.push({ key: field, value });
  return textOf(layers);
}

export function withLayer(packet: string, at: number, name: string): string {
  const layers = layersOf(packet);
  layers.splice(at, 0, { name, args: [] });
  return textOf(layers);
}

export function withoutLayer(packet: string, at: number): string {
  const layers = layersOf(packet);
  layers.splice(at, 1);
  return textOf(layers);
}

/** The layer that contains an octet of the frame, and the smallest field at that octet. */
export function fieldAt(layers: Layer[], octet: number) {
  const layer = layers.findIndex(
    ({ offset, length }) => octet >= offset && octet < offset + length,
  );
  const [field] = (layers[layer]?.fields ?? [])
    .filter(
      ({ bit_offset, bits }) =>
        bits > 0 && bit_offset < octet * 8 + 8 && bit_offset + bits > octet * 8,
    )
    .sort((a, b) => a.bits - b.bits);
  return layer < 0 ? null : { layer, field };
}
