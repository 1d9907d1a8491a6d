/** Where the wall time went, in parts that are named. */
import type { Goodput } from "../types/api";

export interface Part {
  key: string;
  label: string;
  meaning: string;
  secs: number;
  share: number;
}

/** In the order in which they are drawn: what was kept first, then what it cost. */
const NAMES: [string, string, string][] = [
  ["productive", "Productive", "Steps that were kept."],
  ["program_startup", "Starting", "From a session's start until it restores or trains."],
  ["checkpoint_restore", "Restoring", "Reading a checkpoint."],
  ["unproductive_checkpoint_save", "Blocked by saves", "Training waited for a checkpoint."],
  ["wasted_progress_from_disruption", "Wasted", "Steps lost with a session, or after a loss that was not finite."],
  ["infrastructure_recovery_from_disruption", "Downtime", "From the end of a session to the start of the next."],
  ["stall", "Stalled", "No progress for longer than the hang timeout."],
  ["silent", "Silent", "The process did not run: stopped, or its machine frozen."],
  ["at_risk", "At risk", "Steps that are in no checkpoint."],
  ["other", "Other", "Evaluating, stopping, and time with no record."],
];

export function partsOf(goodput: Goodput): Part[] {
  const known = new Map(NAMES.map(([key, label, meaning]) => [key, { key, label, meaning }]));
  const keys = [...NAMES.map(([key]) => key), ...Object.keys(goodput.secs).filter((key) => !known.has(key))];
  return keys.flatMap((key) => {
    const secs = goodput.secs[key] ?? 0;
    if (!(secs > 0)) return [];
    const name = known.get(key) ?? { key, label: key.replaceAll("_", " "), meaning: "" };
    return [{ ...name, secs, share: goodput.wall_secs > 0 ? secs / goodput.wall_secs : 0 }];
  });
}
