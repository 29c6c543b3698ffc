// Columns of tables as values: the content and form of their cells. `parts/Table.svelte` draws
// them.

import type { Snippet } from "svelte";

export interface Column<R> {
  /** Name of the column in the address and in a file, and for programs: `data-column`. */
  id: string;
  /** Title; empty for a column of buttons. */
  title: string;
  /** The unit, shown after the title, if the cells have none. */
  unit?: string;
  /** The full title, if `title` is short. */
  help?: string;
  /** The text of a cell. */
  text?: (row: R, index: number) => string;
  /** A cell with more than text; replaces `text`. */
  cell?: Snippet<[R, number]>;
  /** The whole value, where the cell shortens or rounds it. */
  full?: (row: R) => string | null | undefined;
  /** The reason for a red figure, as a hint and for users who do not see colors. */
  why?: (row: R) => string | undefined;
  /** The link of the cell's text. */
  href?: (row: R) => string | undefined;
  tone?: (row: R) => Tone | undefined;
  /** The column has figures: aligned to the right, sorted from the largest. */
  num?: boolean;
  mono?: boolean;
  muted?: boolean;
  /** The cell names the row; it is above the figures where rows are cards. */
  heading?: boolean;
  /** Text that is too long for the column's width is cut off. */
  cut?: boolean;
  /** The column takes the remaining width. */
  fill?: boolean;
  sortable?: boolean;
  /** Widths as in CSS grid columns, for tables that draw only visible rows. */
  width?: string;
  /** Width in a narrow window; null: not shown. */
  narrow?: string | null;
}

export type Tone = "good" | "warn" | "bad" | "muted";

/** An array, or an object that has only the rows that were fetched. */
export interface Rows<R> {
  readonly length: number;
  at(index: number): R | undefined;
}

export interface Sort {
  by: string;
  ascending: boolean;
}

/** Sort order after a click on a column header. The current column is reversed; a new column sorts
 * descending if it has numbers, otherwise ascending. */
export function sortedBy<R>(columns: Column<R>[], sort: Sort, id: string): Sort {
  const column = columns.find((each) => each.id === id);
  return { by: id, ascending: id === sort.by ? !sort.ascending : !column?.num };
}

/** Number of rows drawn before and after the visible ones, so a short scroll needs no new rows. */
export const AROUND = 6;

export const ROW_HEIGHT = 38;
export const HEAD_HEIGHT = 36;
