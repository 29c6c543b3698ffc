// Columns of tables as values: the content and form of their cells. `parts/Table.svelte` draws
// them.

import type { Snippet } from "svelte";

export interface Column<R> {
  /** Names it in the address, in a file and to programs: `data-column`. */
  id: string;
  /** Empty: buttons. */
  title: string;
  /** Shown after the title, where figures have none. */
  unit?: string;
  /** In full, where the title is short. */
  help?: string;
  /** The text of a cell. */
  text?: (row: R, index: number) => string;
  /** A cell that is more than text; in place of `text`. */
  cell?: Snippet<[R, number]>;
  /** The whole value, where the cell shortens or rounds it. */
  full?: (row: R) => string | null | undefined;
  /** The reason for a red figure, as a hint and for users who do not see colors. */
  why?: (row: R) => string | undefined;
  /** Where its text leads. */
  href?: (row: R) => string | undefined;
  tone?: (row: R) => Tone | undefined;
  /** A figure: aligned to the right, sorted from the largest. */
  num?: boolean;
  mono?: boolean;
  muted?: boolean;
  /** Names the row; above its figures where rows are cards. */
  heading?: boolean;
  /** Cut where it is too long for its width. */
  cut?: boolean;
  /** Takes the width that other columns leave. */
  fill?: boolean;
  sortable?: boolean;
  /** As those of CSS grid columns, where only rows in sight are drawn. */
  width?: string;
  /** Its width in a narrow window; null: it is not there. */
  narrow?: string | null;
}

export type Tone = "good" | "warn" | "bad" | "muted";

/** An array, or what knows only the rows that were fetched. */
export interface Rows<R> {
  readonly length: number;
  at(index: number): R | undefined;
}

export interface Sort {
  by: string;
  ascending: boolean;
}

/** The order after a click on a title: the other way round, or that of a new column, whose figures
 * begin with the largest and names with the first. */
export function sortedBy<R>(columns: Column<R>[], sort: Sort, id: string): Sort {
  const column = columns.find((each) => each.id === id);
  return { by: id, ascending: id === sort.by ? !sort.ascending : !column?.num };
}

/** Rows drawn before and after those in sight, so that a short scroll finds them. */
export const AROUND = 6;

export const ROW_HEIGHT = 38;
export const HEAD_HEIGHT = 36;
