/** What is to be said of a run, as the backend says it; here are only the words for how urgent, and since when. */
import type { Finding, RunLine, Severity, Standing } from "../types/api";
import { formatMoment, roughDuration } from "./format";
import type { Word } from "./words";

export const SEVERITIES: Record<Severity, Word> = {
  page: { glyph: "✕", label: "act now", tone: "bad", meaning: "Work is being lost: act now.", rank: 0 },
  warn: { glyph: "!", label: "today", tone: "warn", meaning: "It needs somebody today.", rank: 1 },
  info: { glyph: "i", label: "to know", tone: "calm", meaning: "To know when there is time.", rank: 2 },
};

/** In the order in which runs are listed. */
export const STANDINGS: Record<Standing, Word> = {
  needs_you: { glyph: "!", label: "need you", tone: "bad", meaning: "Something is wrong now.", rank: 0 },
  fine: { glyph: "▶", label: "fine", tone: "live", meaning: "They go on, and nothing is wrong.", rank: 3 },
  unknown: { glyph: "?", label: "unknown", tone: "dim", meaning: "Nothing is known of their state.", rank: 4 },
  over: { glyph: "■", label: "over", tone: "calm", meaning: "They have ended.", rank: 5 },
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
