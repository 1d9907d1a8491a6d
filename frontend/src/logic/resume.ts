/** Whether a session goes on exactly as the run would have without the restart, in words. */
import type { Session } from "../types/api";
import { brief, plural } from "./format";
import type { Word } from "./words";

/** How many reasons are shown, and how much of each; the CSV has all. */
const MOST_REASONS = 3;
const MOST_LETTERS = 160;

export type Resume = "exact" | "inexact" | "unknown";

export const RESUMES: Record<Resume, Word> = {
  inexact: {
    glyph: "≠",
    label: "not exact",
    tone: "warn",
    meaning: "It does not go on as the run would have without the restart, or may not.",
    rank: 0,
  },
  unknown: {
    glyph: "·",
    label: "unknown",
    tone: "dim",
    meaning: "Its session does not say whether it goes on as the run would have.",
    rank: 1,
  },
  exact: {
    glyph: "✓",
    label: "exact",
    tone: "good",
    meaning: "It goes on exactly as the run would have without the restart.",
    rank: 2,
  },
};

/** What a session says of its resume: silence is not a yes. */
export function resumeOf(session: Session | undefined): Resume {
  return session?.resume_exact === true ? "exact" : session?.resume_exact === false ? "inexact" : "unknown";
}

/** Whether there was anything to resume: a run's first session began from nothing, unless it says otherwise. */
export function hasResumed(session: Session): boolean {
  return session.attempt > 1 || session.resume_exact !== null || session.restored_checkpoint !== null;
}

/** Why it is not exact: sentences, cut, and joined to one; empty without a reason. */
export function reasonsText(session: Session | undefined): string {
  const reasons = session?.resume_reasons ?? [];
  const shown = reasons.slice(0, MOST_REASONS).map((reason) => brief(reason.replace(/\.$/, ""), MOST_LETTERS));
  if (reasons.length > MOST_REASONS) shown.push(`and ${plural(reasons.length - MOST_REASONS, "more reason")}`);
  return shown.join("; ");
}

/** `exact`, `not exact: no position; another number of workers`, or `unknown`. */
export function resumeText(session: Session | undefined): string {
  const { label } = RESUMES[resumeOf(session)];
  const why = resumeOf(session) === "inexact" ? reasonsText(session) : "";
  return why ? `${label}: ${why}` : label;
}
