// Settings of a method as a form: text fields and check boxes, generated from the daemon's schema.

import type { Method, SettingSchema } from "./types";
import { titled } from "./units";

export type Form = Record<string, string | boolean>;

/** The text of a setting: lists of numbers or words are separated by commas, nested values are
 * JSON. */
function textOf(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value) && value.every((each) => typeof each !== "object"))
    return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Initial values of the settings: short trials have shorter times than the method's defaults. */
const presets = (method: Method, quick: boolean): Record<string, unknown> =>
  quick ? method.quick : method.defaults;

export const initial = (method: Method, quick: boolean): Form =>
  Object.fromEntries(
    Object.keys(method.settings.properties).map((key) => {
      const value = presets(method, quick)[key];
      return [key, typeof value === "boolean" ? value : textOf(value)];
    }),
  );

/** The schema that a `$ref` refers to. */
function resolved(method: Method, schema: SettingSchema | undefined): SettingSchema {
  const name = schema?.$ref?.replace("#/$defs/", "");
  return (name ? method.settings.$defs?.[name] : schema) ?? {};
}

/** A permitted value of a setting, its title, and its meaning. */
export interface Choice {
  word: string;
  title: string;
  about: string | undefined;
}

/** The permitted values of a setting, or of its items. */
export function choices(method: Method, property: SettingSchema): Choice[] {
  const of = resolved(method, property.items ?? property);
  const words = [
    ...(of.enum ?? []).map((word) => ({ word, about: undefined })),
    ...(of.oneOf ?? []).map((each) => ({ word: each.const, about: each.description })),
  ];
  return words.flatMap(({ word, about }) =>
    typeof word === "string" ? [{ word, title: titled(word.replaceAll("-", " ")), about }] : [],
  );
}

export const isList = (property: SettingSchema): boolean =>
  [property.type].flat().includes("array");

/** The words of a list with choices. */
export const chosen = (text: string | boolean | undefined): string[] =>
  String(text ?? "")
    .split(/\s*,\s*/)
    .filter(Boolean);

/** The list with a word added or removed, in the order of the choices. */
export const toggled = (all: Choice[], text: string | boolean | undefined, word: string): string =>
  all
    .map((choice) => choice.word)
    .filter((each) => chosen(text).includes(each) !== (each === word))
    .join(", ");

/** The form after a change of `quick`: fields keep the values that were entered. */
export const switched = (method: Method, form: Form, quick: boolean): Form => {
  const before = initial(method, !quick);
  const edited = Object.entries(form).filter(([key, value]) => value !== before[key]);
  return { ...initial(method, quick), ...Object.fromEntries(edited) };
};

/** The description of a setting, with its default. */
export function helpOf(
  method: Method,
  key: string,
  property: SettingSchema,
  quick: boolean,
): string {
  const words = choices(method, property);
  const preset = textOf(presets(method, quick)[key]);
  const shown = words.length
    ? chosen(preset)
        .map((word) => words.find((each) => each.word === word)?.title ?? word)
        .join(", ")
    : preset;
  return [property.description, shown && `Default: ${shown}`].filter(Boolean).join(". ");
}

function valueOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

function read(property: SettingSchema, text: string | boolean): unknown {
  if (typeof text === "boolean") return text;
  const typed = text.trim();
  if (!isList(property)) return typed ? valueOf(typed) : null;
  if (typed.startsWith("[")) return valueOf(typed);
  return typed ? typed.split(/\s*,\s*/).map(valueOf) : [];
}

/** The settings that differ from their defaults. */
export function settingsOf(method: Method, form: Form, quick: boolean): Record<string, unknown> {
  const first = initial(method, quick);
  const changed = Object.entries(method.settings.properties).filter(
    ([key]) => form[key] !== undefined && form[key] !== first[key],
  );
  return Object.fromEntries(changed.map(([key, of]) => [key, read(of, form[key] ?? "")]));
}
