/** Columns that the list of runs may have besides its own, as the routes `fields` and `columns` know them: by a key. */
import type { RunLine } from "../types/api";
import type { ColumnsAnswer, Setting } from "../types/columns";
import type { Cell, Separator } from "./csv";
import { isoMoment, toCsv } from "./csv";
import { formatDuration, formatMoment, formatValue, UNKNOWN } from "./format";
import { labelWords } from "./placement";

/** That one question may name. */
export const MOST_COLUMNS = 50;

const WHOLE: Readonly<Record<string, string>> = { duration: "Duration", started: "Started", host: "Host" };
const KINDS: Readonly<Record<string, string>> = {
  tag: "last value",
  hparam: "hyperparameter",
  label: "label",
  version: "version of a package",
  recorded: "recorded by the run",
};

/** What a column is called, and what kind of value it has. */
export function namesOf(key: string): { name: string; kind: string } {
  if (Object.hasOwn(WHOLE, key)) return { name: WHOLE[key] ?? key, kind: "" };
  const at = key.indexOf(":");
  const kind = key.slice(0, at);
  return { name: key.slice(at + 1), kind: Object.hasOwn(KINDS, kind) ? (KINDS[kind] ?? "") : "" };
}

/** Whether there may be a column of this key. */
export const isColumn = (key: string): boolean =>
  Object.hasOwn(WHOLE, key) || (/^\w+:./.test(key) && Object.hasOwn(KINDS, key.slice(0, key.indexOf(":"))));

const WORDS: Readonly<Record<string, string>> = { nan: "NaN", inf: "∞", "-inf": "−∞" };

/** What stands in a cell. */
export function columnText(key: string, value: Setting | null): string {
  if (value === null) return UNKNOWN;
  if (key.startsWith("tag:")) return typeof value === "number" ? formatValue(value) : (WORDS[String(value)] ?? UNKNOWN);
  if (typeof value !== "number") return String(value);
  return key === "duration" ? formatDuration(value) : key === "started" ? formatMoment(value) : String(value);
}

/** The values of columns, by column and run. */
export class ColumnValues {
  readonly #values = new Map<string, Map<string, Setting>>();
  generation: number | null = null;

  apply({ full, generation, columns }: ColumnsAnswer): void {
    if (full) this.#values.clear();
    this.generation = generation;
    for (const [key, runs] of Object.entries(columns)) {
      const known = this.#values.get(key) ?? new Map<string, Setting>();
      this.#values.set(key, known);
      for (const [run, value] of Object.entries(runs)) {
        if (value === null) known.delete(run);
        else known.set(run, value);
      }
    }
  }

  of(key: string, run: string): Setting | null {
    return this.#values.get(key)?.get(run) ?? null;
  }
}

const CSV: [string, (line: RunLine) => Cell][] = [
  ["run", (line) => line.run],
  ["state", (line) => line.state],
  ["standing", (line) => line.standing],
  ["step", (line) => line.step],
  ["steps_per_sec", (line) => line.steps_per_sec],
  ["checkpoint_at", (line) => isoMoment(line.checkpoint_at)],
  ["checkpoint_step", (line) => line.checkpoint_step],
  ["restarts", (line) => line.restarts],
  ["recoveries", (line) => line.recoveries],
  ["goodput", (line) => line.goodput],
  ["last_event", (line) => isoMoment(line.last_event)],
  ["labels", (line) => labelWords(line.labels).join(" ")],
  ["finding", (line) => line.finding?.sentence],
];

/** The list as a table of raw values, with these columns besides. */
export function listCsv(
  lines: readonly RunLine[],
  keys: readonly string[],
  values: ColumnValues,
  separator: Separator,
): string {
  const cell = (key: string, run: string): Cell => {
    const value = values.of(key, run);
    return key === "started" && typeof value === "number" ? isoMoment(value) : value;
  };
  return toCsv(
    [...CSV.map(([name]) => name), ...keys],
    lines.map((line) => [...CSV.map(([, value]) => value(line)), ...keys.map((key) => cell(key, line.run))]),
    separator,
  );
}
