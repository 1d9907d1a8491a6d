/** The recommended checkpoint interval beside the present one, in sentences. */
import type { Advice } from "../types/api";
import { formatDuration, formatShare } from "./format";

export interface AdviceWords {
  title: string;
  detail: string;
  /** Whether there is something to change. */
  change: boolean;
}

/** Null where neither interval is known. `wallSecs` is what shares are told of. */
export function adviceWords(advice: Advice, wallSecs: number): AdviceWords | null {
  const { present_interval_secs: present, recommended_interval_secs: better } = advice;
  if (present == null && better == null) return null;
  const costs = costWords(advice);
  if (better == null) {
    const lacking = advice.mtbf_secs == null ? "no session has failed yet" : "no save has been timed yet";
    return {
      title: `Saves every ${formatDuration(present)}`,
      detail: `A better interval is not known: ${lacking}.`,
      change: false,
    };
  }
  if (present == null) {
    return { title: `Save every ${formatDuration(better)}`, detail: `No interval is configured. ${costs}`, change: true };
  }
  const saved = (advice.present_cost_ratio ?? NaN) - (advice.recommended_cost_ratio ?? NaN);
  const near = Math.abs(Math.log2(present / better)) < 0.5 || !(saved > 0.001);
  if (near) {
    return {
      title: `Saves every ${formatDuration(present)}: about right`,
      detail: `Best by its own costs: every ${formatDuration(better)}. ${costs}`,
      change: false,
    };
  }
  return {
    title: `Save every ${formatDuration(better)} instead of ${formatDuration(present)}`,
    detail:
      `It would save ${formatShare(saved)} of the time` +
      (wallSecs > 0 ? `, ${formatDuration(saved * wallSecs)} so far` : "") +
      `: ${formatShare(advice.present_cost_ratio)} goes into saving and work lost, it could be ` +
      `${formatShare(advice.recommended_cost_ratio)}. ${costs}`,
    change: true,
  };
}

function costWords(advice: Advice): string {
  const said: string[] = [];
  if (advice.save_cost_secs != null) said.push(`A save holds training up for ${formatDuration(advice.save_cost_secs)}`);
  if (advice.mtbf_secs != null) said.push(`a session fails every ${formatDuration(advice.mtbf_secs)}`);
  return said.length ? `${said.join("; ")}.` : "";
}
