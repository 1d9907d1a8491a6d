/** What is to be said of a run, as the backend says it; here are only the words for how urgent, and since when. */
import type { Finding, RunLine, Severity, Standing } from "../types/api";
import { formatMoment, roughDuration } from "./format";
import type { Word } from "./words";
import { word } from "./words";

export const SEVERITIES: Record<Severity, Word> = {
  page: word("✕", "act now", "bad", "Work is being lost: act now.", 0),
  warn: word("!", "today", "warn", "It needs somebody today.", 1),
  info: word("i", "to know", "calm", "To know when there is time.", 2),
};

/** In the order in which runs are listed. */
export const STANDINGS: Record<Standing, Word> = {
  needs_you: word("!", "need you", "bad", "Something is wrong now.", 0),
  fine: word("▶", "fine", "live", "They go on, and nothing is wrong.", 3),
  unknown: word("?", "unknown", "dim", "Nothing is known of their state.", 4),
  over: word("■", "over", "calm", "They have ended.", 5),
};

/** What stands in the place of findings that could not be had. */
export const NOT_JUDGED = "This run could not be judged. The log has why.";

/** `3 need you`, `1 needs you`, `94 fine`. */
export function standingWords(standing: Standing, count: number, number: string): string {
  return standing === "needs_you" && count === 1 ? `${number} needs you` : `${number} ${STANDINGS[standing].label}`;
}

/** How soon somebody has to look at a run, 0 for at once: by its worst finding where it needs somebody. */
export function urgencyOf({ standing, finding }: RunLine): number {
  const rank = STANDINGS[standing].rank;
  return standing === "needs_you" && finding ? SEVERITIES[finding.severity].rank : rank;
}

/** `since 14:03:22 (3 min)`, with the day where that is not today's; empty where it is not known. */
export function sinceWords(finding: Finding, now: number): string {
  if (finding.since === null || !(finding.since > 0)) return "";
  const [day, time] = formatMoment(finding.since).split(" ") as [string, string];
  const isToday = formatMoment(now).startsWith(day);
  return `since ${isToday ? time : `${day} ${time}`} (${roughDuration(Math.max(0, now - finding.since))})`;
}

/** Where the backend has the runbook's entry; null without one. */
export const runbookOf = ({ alert }: Finding): string | null =>
  alert === null ? null : `alerts#${encodeURIComponent(alert.toLowerCase())}`;
