/** RFC 4180, each text in quotes, with a guard against formulas; with tabs, what a spreadsheet pastes. */

export type Cell = string | number | boolean | null | undefined;

export type Separator = "," | "\t";

export function toCsv(head: readonly string[], rows: Iterable<readonly Cell[]>, separator: Separator = ","): string {
  const lines = [head.map(quote).join(separator)];
  for (const row of rows) lines.push(row.map(quote).join(separator));
  return `${lines.join("\r\n")}\r\n`;
}

/** What may stand before a formula, and its sign; the same as in supervisor_core/history/formats.py. */
const FORMULA = /(^[\s";]*|[\s";]+)([=+\-@\uff0b\uff0d\uff1d\uff20]?)/g;

function quote(cell: Cell): string {
  if (cell == null) return "";
  return typeof cell === "string" ? `"${cell.replace(FORMULA, guarded).replaceAll('"', '""')}"` : String(cell);
}

function guarded(whole: string, before: string, sign: string, at: number): string {
  if (at === 0) return sign || /^[\t\r]/.test(before) ? `'${whole}` : whole;
  return sign && /[;\t\r\n]/.test(before) ? `${before}'${sign}` : whole;
}

/** A file name from a run's name, whatever that holds. */
export function fileName(run: string, what: string, kind = "csv"): string {
  const plain = run.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[-.]+|[-.]+$/g, "");
  return `${(plain || "run").slice(0, 100)}-${what}.${kind}`;
}

/** A moment for machines: ISO 8601 in UTC, to the millisecond; empty where not known. */
export function isoMoment(at: number | null): string {
  return at == null || !Number.isFinite(at) || Math.abs(at) > 8e12 ? "" : new Date(at * 1000).toISOString();
}
