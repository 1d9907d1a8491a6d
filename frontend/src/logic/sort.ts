/** The order of the overview. What is not known comes last, whichever way round. */
import type { RunLine } from "../types/api";
import type { Setting } from "../types/columns";
import { urgencyOf } from "./findings";
import { isColumn } from "./list_columns";

type OwnKey = "state" | "run" | "step" | "rate" | "checkpoint" | "restarts" | "goodput" | "last";

/** A column of the list's own, or the key of a chosen one. */
export type SortKey = OwnKey | `${string}:${string}` | "duration" | "started" | "host";
export type Direction = "min" | "max";

export interface Sort {
  key: SortKey;
  descending: boolean;
}

const OWN_KEYS: readonly string[] = ["state", "run", "step", "rate", "checkpoint", "restarts", "goodput", "last"];

export const collator = new Intl.Collator("en", { numeric: true });

export const isSortKey = (key: string): key is SortKey => OWN_KEYS.includes(key) || isColumn(key);

/** Names of tags whose highest value is the best. */
const HIGHER = /acc|auc|bleu|f1|iou|map\b|precision|psnr|recall|return|reward|rouge|score|ssim|success|throughput/i;

/** Whether a tag's lowest or highest value is the best: as chosen, else by the tag's name. */
export const directionOf = (tag: string, best: Direction | null): Direction =>
  best ?? (HIGHER.test(tag) ? "max" : "min");

/** Most urgent first: by state; newest first: by last seen; the best first: by a tag. */
export function startsDescending(key: SortKey): boolean {
  if (key.startsWith("tag:")) return directionOf(key, null) === "max";
  if (isColumn(key)) return key === "started";
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
    default:
      return null;
  }
}

/** What is not known comes last, whichever way round; so does what is not finite among numbers. */
export function settingsOrder(a: Setting | null, b: Setting | null, descending: boolean): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (typeof a !== typeof b) return Number(typeof a !== "number") - Number(typeof b !== "number");
  const order = typeof a === "number" ? a - Number(b) : collator.compare(String(a), String(b));
  return descending ? -order : order;
}

/** `valueIn`: what a run has in a chosen column. */
export function sortRuns(
  lines: readonly RunLine[],
  sort: Sort,
  valueIn: (key: string, run: string) => Setting | null = () => null,
): RunLine[] {
  if (isColumn(sort.key)) {
    const keyed = lines.map((line) => ({ line, value: valueIn(sort.key, line.run) }));
    keyed.sort((a, b) => settingsOrder(a.value, b.value, sort.descending) || collator.compare(a.line.run, b.line.run));
    return keyed.map((item) => item.line);
  }
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
