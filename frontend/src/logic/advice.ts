/** The recommended checkpoint interval beside the present one, in sentences. */
import type { Advice } from "../types/api";
import { formatDuration, formatShare, plural } from "./format";

export interface AdviceWords {
  title: string;
  detail: string;
}

/** Null where there is nothing to change, or too little is known to say so. Shares are of `wallSecs`. */
export function adviceWords(advice: Advice, wallSecs: number): AdviceWords | null {
  const { present_interval_secs: present, recommended_interval_secs: better } = advice;
  if (better == null) return null;
  const costs = costWords(advice);
  if (present == null)
    return { title: `Save every ${formatDuration(better)}`, detail: `No interval is configured. ${costs}` };
  const saved = (advice.present_cost_ratio ?? NaN) - (advice.recommended_cost_ratio ?? NaN);
  if (Math.abs(Math.log2(present / better)) < 0.5 || !(saved > 0.001)) return null;
  return {
    title: `Save every ${formatDuration(better)} instead of ${formatDuration(present)}`,
    detail:
      `It is expected to save ${formatShare(saved)} of the time` +
      (wallSecs > 0 ? `, ${formatDuration(saved * wallSecs)} in as long again` : "") +
      `: saving and lost work are expected to cost ${formatShare(advice.present_cost_ratio)} now, and ` +
      `${formatShare(advice.recommended_cost_ratio)} then. ${costs}`,
  };
}

function costWords(advice: Advice): string {
  const said: string[] = [];
  if (advice.save_cost_secs != null) said.push(`A save holds training up for ${formatDuration(advice.save_cost_secs)}`);
  if (advice.mtbf_secs != null)
    said.push(
      `every ${formatDuration(advice.mtbf_secs)} of training a session was killed, failed, or was stopped by a signal ` +
        `(${plural(advice.failures, "session")}; those that got the run no further do not count)`,
    );
  const { recommended_low_secs: low, recommended_high_secs: high } = advice;
  const range =
    low != null && high != null
      ? ` With 95 % confidence the best interval is between ${formatDuration(low)} and ${formatDuration(high)}.`
      : "";
  return `${said.length ? `${said.join("; ")}.` : ""}${range}`;
}
