/** The order of the overview. What is not known comes last, whichever way round. */
import type { RunLine } from "../types/api";
import { RUN_STATES, wordOf } from "./words";

export type SortKey = "state" | "run" | "step" | "rate" | "checkpoint" | "restarts" | "goodput" | "last";

export interface Sort {
  key: SortKey;
  descending: boolean;
}

export const SORT_KEYS: readonly SortKey[] = [
  "state", "run", "step", "rate", "checkpoint", "restarts", "goodput", "last",
];

const collator = new Intl.Collator("en", { numeric: true });

/** What is worst first: by state, then by name; newest first: by last seen. */
export function startsDescending(key: SortKey): boolean {
  return key !== "state" && key !== "run" && key !== "goodput";
}

function valueOf(line: RunLine, key: SortKey): number | null {
  switch (key) {
    case "state":
      // Of two in one state the one whose cluster is in trouble comes first.
      return wordOf(RUN_STATES, line.state).rank - (line.sick_workers ? 0.5 : 0);
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
  const keyed = lines.map((line) => ({ line, value: valueOf(line, sort.key) }));
  keyed.sort((a, b) => {
    if (sort.key === "run") return sign * collator.compare(a.line.run, b.line.run);
    if (a.value === b.value) return tieBreak(a.line, b.line, sort.key);
    if (a.value == null) return 1;
    if (b.value == null) return -1;
    return sign * (a.value - b.value);
  });
  return keyed.map((item) => item.line);
}

function tieBreak(a: RunLine, b: RunLine, key: SortKey): number {
  const newer = key === "state" ? (b.last_event ?? 0) - (a.last_event ?? 0) : 0;
  // Running ones write all the time: by their moments they would change places at every reload.
  return (a.state === "running" ? 0 : newer) || collator.compare(a.run, b.run);
}
