// Rows as CSV (RFC 4180), for spreadsheets and pandas.

type Cell = string | number | null | string[];

export function csv<R extends object>(columns: (keyof R & string)[], rows: R[]): string {
  const line = (cells: Cell[]): string => cells.map(cell).join(",") + "\r\n";
  const cells = (row: R): Cell[] => columns.map((column) => row[column] as Cell);
  return line(columns) + rows.map((row) => line(cells(row))).join("");
}

function cell(value: Cell): string {
  const text = value === null ? "" : Array.isArray(value) ? value.join(" ") : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Downloads the content as a file in the browser. */
export function keep(name: string, octets: Blob): void {
  const url = URL.createObjectURL(octets);
  const link = document.createElement("a");
  [link.href, link.download] = [url, name];
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
