// Settings of a method as a form: text fields and check boxes, generated from the daemon's schema.

import type { Method, SettingSchema } from "./types";

export type Form = Record<string, string | boolean>;

/** The text of a setting: lists of numbers or words are separated by commas, nested values are
 * JSON. */
function textOf(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value) && value.every((each) => typeof each !== "object"))
    return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export const initial = (method: Method): Form =>
  Object.fromEntries(
    Object.keys(method.settings.properties).map((key) => {
      const value = method.defaults[key];
      return [key, typeof value === "boolean" ? value : textOf(value)];
    }),
  );

/** The schema that a `$ref` refers to. */
function resolved(method: Method, schema: SettingSchema | undefined): SettingSchema {
  const name = schema?.$ref?.replace("#/$defs/", "");
  return (name ? method.settings.$defs?.[name] : schema) ?? {};
}

/** The permitted values of a setting, or of its items. */
export function choices(method: Method, property: SettingSchema): string[] {
  const of = resolved(method, property.items ?? property);
  return [...(of.enum ?? []), ...(of.oneOf ?? []).map((each) => each.const)].filter(
    (word): word is string => typeof word === "string",
  );
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
  const isList = [property.type].flat().includes("array");
  if (!isList) return typed ? valueOf(typed) : null;
  if (typed.startsWith("[")) return valueOf(typed);
  return typed ? typed.split(/\s*,\s*/).map(valueOf) : [];
}

/** The settings that differ from their defaults. */
export function settingsOf(method: Method, form: Form): Record<string, unknown> {
  const first = initial(method);
  const changed = Object.entries(method.settings.properties).filter(
    ([key]) => form[key] !== undefined && form[key] !== first[key],
  );
  return Object.fromEntries(changed.map(([key, of]) => [key, read(of, form[key] ?? "")]));
}
