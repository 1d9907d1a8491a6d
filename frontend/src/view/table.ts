/** A table people copy from, and the same as CSV. */
import type { Cell } from "../logic/csv";
import { toCsv } from "../logic/csv";
import { h } from "./element";

export interface Column<Row> {
  name: string;
  /** What is shown. */
  show(row: Row): string | Node;
  /** In CSV, raw numbers and moments, units in the name: fields as they are, or a name and its value. */
  csv: readonly ((keyof Row & string) | [string, (row: Row) => Cell])[];
  number?: boolean;
  wide?: boolean;
}

export function makeTable<Row>(label: string, columns: readonly Column<Row>[], rows: readonly Row[]): HTMLElement {
  const head = h("tr", {});
  for (const column of columns)
    head.append(h("th", { scope: "col", class: column.number ? "num" : null }, column.name));
  const body = h("tbody", {});
  for (const row of rows) {
    const line = h("tr", {});
    for (const column of columns) {
      const shown = column.show(row);
      const title = column.wide && typeof shown === "string" ? shown : null;
      line.append(h("td", { class: `${column.number ? "num " : ""}${column.wide ? "wide" : ""}`, title }, shown));
    }
    body.append(line);
  }
  return h(
    "div",
    { class: "table-box", role: "region", tabindex: 0, "aria-label": label },
    h("table", {}, h("thead", {}, head), body),
  );
}

export function csvOf<Row>(columns: readonly Column<Row>[], rows: Iterable<Row>): string {
  const cells = columns.flatMap((column) => column.csv);
  return toCsv(
    cells.map((cell) => (typeof cell === "string" ? cell : cell[0])),
    (function* () {
      for (const row of rows)
        yield cells.map((cell) => (typeof cell === "string" ? (row[cell] as Cell) : cell[1](row)));
    })(),
  );
}

export function download(name: string, content: BlobPart, type = "text/csv;charset=utf-8"): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
