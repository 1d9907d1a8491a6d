/** The recommended checkpoint interval beside the present one, in sentences. */
import type { Advice } from "../types/api";
import { formatDuration, formatShare, plural } from "./format";

export interface AdviceWords {
  title: string;
  detail: string;
  /** Whether there is something to change. */
  change: boolean;
  /** Whether enough is known to say so. */
  known: boolean;
}

/** Null where neither interval is known. Shares are of `wallSecs`. */
export function adviceWords(advice: Advice, wallSecs: number): AdviceWords | null {
  const { present_interval_secs: present, recommended_interval_secs: better } = advice;
  if (present == null && better == null) return null;
  const costs = costWords(advice);
  if (better == null) {
    const few = `${plural(advice.failures, "failure")} so far ${advice.failures === 1 ? "says" : "say"} too little`;
    const lacking =
      advice.save_cost_secs == null
        ? "no good save has been timed"
        : advice.failures === 0
          ? "no session has failed yet"
          : few;
    return {
      title: `Saves every ${formatDuration(present)}`,
      detail: `A better interval is not known: ${lacking}.`,
      change: false,
      known: false,
    };
  }
  if (present == null) {
    return {
      title: `Save every ${formatDuration(better)}`,
      detail: `No interval is configured. ${costs}`,
      change: true,
      known: true,
    };
  }
  const saved = (advice.present_cost_ratio ?? NaN) - (advice.recommended_cost_ratio ?? NaN);
  const near = Math.abs(Math.log2(present / better)) < 0.5 || !(saved > 0.001);
  if (near) {
    return {
      title: `Saves every ${formatDuration(present)}: about right`,
      detail: `Expected to cost least: every ${formatDuration(better)}. ${costs}`,
      change: false,
      known: true,
    };
  }
  return {
    title: `Save every ${formatDuration(better)} instead of ${formatDuration(present)}`,
    detail:
      `It is expected to save ${formatShare(saved)} of the time` +
      (wallSecs > 0 ? `, ${formatDuration(saved * wallSecs)} in as long again` : "") +
      `: saving and lost work are expected to cost ${formatShare(advice.present_cost_ratio)} now, and ` +
      `${formatShare(advice.recommended_cost_ratio)} then. ${costs}`,
    change: true,
    known: true,
  };
}

function costWords(advice: Advice): string {
  const said: string[] = [];
  if (advice.save_cost_secs != null) said.push(`A save holds training up for ${formatDuration(advice.save_cost_secs)}`);
  if (advice.mtbf_secs != null)
    said.push(`a session fails every ${formatDuration(advice.mtbf_secs)}, by ${plural(advice.failures, "failure")}`);
  const { recommended_low_secs: low, recommended_high_secs: high } = advice;
  const range =
    low != null && high != null
      ? ` With 95 % confidence the best interval is between ${formatDuration(low)} and ${formatDuration(high)}.`
      : "";
  return `${said.length ? `${said.join("; ")}.` : ""}${range}`;
}
