// Table columns as values: the content and format of their cells. `parts/Table.svelte` draws them.

import type { Snippet } from "svelte";

export interface Column<R> {
  /** Name of the column in the URL and in exported files, and in the attribute `data-column`. */
  id: string;
  /** Title; empty for a column of buttons. */
  title: string;
  /** The unit, shown after the title, if the cells do not include it. */
  unit?: string;
  /** The full title, if `title` is abbreviated. */
  help?: string;
  /** The text of a cell. */
  text?: (row: R, index: number) => string;
  /** A cell with more than text; replaces `text`. */
  cell?: Snippet<[R, number]>;
  /** The full value, if the cell shortens or rounds it. */
  full?: (row: R) => string | null | undefined;
  /** Why the figure is red, as a tooltip and for screen readers. */
  why?: (row: R) => string | undefined;
  /** Link target of the cell's text. */
  href?: (row: R) => string | undefined;
  tone?: (row: R) => Tone | undefined;
  /** Numeric column: aligned to the right, sorted in descending order first. */
  num?: boolean;
  mono?: boolean;
  muted?: boolean;
  /** The cell names the row; it is the heading if rows are shown as cards. */
  heading?: boolean;
  /** Truncate text that is wider than the column. */
  cut?: boolean;
  /** The column takes the remaining width. */
  fill?: boolean;
  sortable?: boolean;
  /** Width as in CSS grid columns, for tables that draw only visible rows. */
  width?: string;
  /** Width in a narrow window; null: hidden. */
  narrow?: string | null;
}

export type Tone = "good" | "warn" | "bad" | "muted";

/** An array, or an object that has only the rows fetched so far. */
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

/** Number of rows drawn before and after the visible ones: a short scroll then draws nothing new.
 * */
export const AROUND = 6;

export const ROW_HEIGHT = 38;
export const HEAD_HEIGHT = 36;
