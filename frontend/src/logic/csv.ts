/** RFC 4180, with a guard against cells that a spreadsheet would take for a formula; with tabs, what a spreadsheet pastes. */

export type Cell = string | number | boolean | null | undefined;

export type Separator = "," | "\t";

export function toCsv(head: readonly string[], rows: Iterable<readonly Cell[]>, separator: Separator = ","): string {
  const lines = [head.map(quote).join(separator)];
  for (const row of rows) lines.push(row.map(quote).join(separator));
  return `${lines.join("\r\n")}\r\n`;
}

function quote(cell: Cell): string {
  if (cell == null) return "";
  if (typeof cell !== "string") return String(cell);
  const safe = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\t\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
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
