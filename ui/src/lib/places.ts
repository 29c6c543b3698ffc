// Assigns errors to the fields of a form, so that each is shown at its field.

export interface Place {
  /** The field's names in messages of the daemon: `duration_s: expected ...`, `port eth1: filter
   * "...": ...`. */
  keys?: string[];
  /** The values typed into the field, which messages repeat. */
  values?: string[];
}

export interface Placed<K extends string> {
  at: Partial<Record<K, string>>;
  /** Problems that belong to no field. */
  rest: string[];
}

/** Splits the text of a field with several addresses: `eth1, loop:0`. */
export const addressesOf = (text: string): string[] =>
  text.split(/[\s,]+(?=[a-z_]+:|\w+$)/).filter(Boolean);

export function placed<K extends string>(lines: string[], fields: Record<K, Place>): Placed<K> {
  const found: Placed<K> = { at: {}, rest: [] };
  for (const line of lines) {
    const [first = "", ...more] = line.split("\n");
    const entries = Object.entries(fields) as [K, Place][];
    const byKey = entries.find(([, { keys = [] }]) =>
      keys.some((key) => new RegExp(`(^|^\\S+\\.|: )${key}(\\[\\d+\\])?[: ]`).test(first)),
    );
    const byValue = entries.find(([, { values = [] }]) =>
      values.some((value) => value && mentions(first, value)),
    );
    const field = (byKey ?? byValue)?.[0];
    if (!field) {
      found.rest.push(line);
      continue;
    }
    const text = [first, ...more.map((each) => each.trim())].join("\n");
    found.at[field] = found.at[field] ? `${found.at[field]}\n${text}` : text;
    // An error about a port in use is shown with a link to the ports page.
    if (/: held by /.test(line)) found.rest.push(line);
  }
  return found;
}

/** Whether a line contains a value as a whole word: `eth1` is found in `af_packet:eth1: no such
 * interface`, but not in `eth10`. */
function mentions(line: string, value: string): boolean {
  const at = line.indexOf(value);
  const outside = (c: string | undefined): boolean => c === undefined || !/[\w.-]/.test(c);
  return at >= 0 && outside(line[at - 1]) && outside(line[at + value.length]);
}
