/** The order of the overview. What is not known comes last, whichever way round. */
import type { RunLine } from "../types/api";
import { urgencyOf } from "./findings";

export type SortKey = "state" | "run" | "step" | "rate" | "checkpoint" | "restarts" | "goodput" | "last";

export interface Sort {
  key: SortKey;
  descending: boolean;
}

export const SORT_KEYS: readonly SortKey[] = [
  "state",
  "run",
  "step",
  "rate",
  "checkpoint",
  "restarts",
  "goodput",
  "last",
];

const collator = new Intl.Collator("en", { numeric: true });

/** Most urgent first: by state; newest first: by last seen. */
export function startsDescending(key: SortKey): boolean {
  return key !== "state" && key !== "run" && key !== "goodput";
}

function sortValue(line: RunLine, key: SortKey): number | null {
  switch (key) {
    case "state":
      return urgencyOf(line);
    case "step":
      return line.step;
    case "rate":
      return line.steps_per_sec;
    case "checkpoint":
      return line.checkpoint_at == null ? null : -line.checkpoint_at;
    case "restarts":
      return line.restarts + line.recoveries * 1e-6;
    case "goodput":
      return line.goodput;
    case "last":
      return line.last_event;
    case "run":
      return null;
  }
}

export function sortRuns(lines: readonly RunLine[], sort: Sort): RunLine[] {
  const sign = sort.descending ? -1 : 1;
  const keyed = lines.map((line) => ({ line, value: sortValue(line, sort.key) }));
  keyed.sort((a, b) => {
    if (sort.key === "run") return sign * collator.compare(a.line.run, b.line.run);
    if (a.value === b.value) return tieBreak(a.line, b.line, sort.key);
    if (a.value == null) return 1;
    if (b.value == null) return -1;
    return sign * (a.value - b.value);
  });
  return keyed.map((item) => item.line);
}

/** Of two that are as urgent: the newest trouble first; what is over, by its last event. What goes on, and what is sorted
 * by another column, by name: by their moments, runs would change places at every reload. */
function tieBreak(a: RunLine, b: RunLine, key: SortKey): number {
  const at = ({ standing, finding, last_event }: RunLine): number =>
    standing === "needs_you" ? (finding?.since ?? 0) : standing === "over" ? (last_event ?? 0) : 0;
  return (key === "state" ? at(b) - at(a) : 0) || collator.compare(a.run, b.run);
}
