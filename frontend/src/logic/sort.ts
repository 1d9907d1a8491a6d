/** The order of the overview. What is not known comes last, whichever way round. */
import type { RunLine, RunState } from "../types/api";
import { RUN_STATES, wordOf } from "./words";

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

/** Trouble older than this has been seen by whoever was to see it. */
const FRESH_SECS = 86_400;
/** What needs somebody, the most urgent first: what is stalled holds its machines as well. */
const URGENT: readonly RunState[] = ["stalled", "lost", "failed"];

const collator = new Intl.Collator("en", { numeric: true });

/** Most urgent first: by state, then by name; newest first: by last seen. */
export function startsDescending(key: SortKey): boolean {
  return key !== "state" && key !== "run" && key !== "goodput";
}

/**
 * How soon somebody has to look: trouble of the last day, by its kind; what runs, first where workers, threads or saves
 * are in trouble; older trouble; what is over.
 */
export function urgency(line: RunLine, now: number): number {
  const kind = URGENT.indexOf(line.state);
  const isFresh = line.state === "stalled" || (line.last_event !== null && now - line.last_event < FRESH_SECS);
  if (kind >= 0) return isFresh ? kind : 20 + kind;
  if (line.state === "running") return line.sick_workers || line.sick_threads || line.checkpoints_failing ? 10 : 11;
  return 30 + wordOf(RUN_STATES, line.state).rank;
}

function sortValue(line: RunLine, key: SortKey, now: number): number | null {
  switch (key) {
    case "state":
      return urgency(line, now);
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

export function sortRuns(lines: readonly RunLine[], sort: Sort, now: number): RunLine[] {
  const sign = sort.descending ? -1 : 1;
  const keyed = lines.map((line) => ({ line, value: sortValue(line, sort.key, now) }));
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
