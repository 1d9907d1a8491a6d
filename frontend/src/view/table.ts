/** A table people copy from, and the same as CSV. */
import type { Cell } from "../logic/csv";
import { toCsv } from "../logic/csv";
import { h } from "./element";

export interface Column<Row> {
  name: string;
  /** What is shown. */
  show(row: Row): string | Node;
  /** The name and value in CSV: raw numbers and moments, units in the name. */
  csv: [string, (row: Row) => Cell][];
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
  const head = cells.map(([name]) => name);
  return toCsv(
    head,
    (function* () {
      for (const row of rows) yield cells.map(([, value]) => value(row));
    })(),
  );
}

export function download(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
