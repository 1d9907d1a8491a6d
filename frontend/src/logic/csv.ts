/** RFC 4180, with a guard against cells that a spreadsheet would take for a formula. */

export type Cell = string | number | boolean | null | undefined;

export function toCsv(head: readonly string[], rows: Iterable<readonly Cell[]>): string {
  const lines = [head.map(quote).join(",")];
  for (const row of rows) lines.push(row.map(quote).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

function quote(cell: Cell): string {
  if (cell == null) return "";
  if (typeof cell !== "string") return String(cell);
  const safe = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** A file name from a run's name, whatever that holds. */
export function fileName(run: string, what: string): string {
  const plain = run.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[-.]+|[-.]+$/g, "");
  return `${(plain || "run").slice(0, 100)}-${what}.csv`;
}

/** A moment for machines: ISO 8601 in UTC, to the millisecond; empty where not known. */
export function isoMoment(at: number | null): string {
  return at == null || !Number.isFinite(at) || Math.abs(at) > 8e12 ? "" : new Date(at * 1000).toISOString();
}
