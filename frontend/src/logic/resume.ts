/** Whether a session goes on exactly as the run would have without the restart, in words. */
import type { Session } from "../types/api";
import { brief, plural } from "./format";
import type { Word } from "./words";
import { word } from "./words";

/** How many reasons are shown, and how much of each; the CSV has all. */
const MOST_REASONS = 3;
const MOST_LETTERS = 160;

export type Resume = "observed" | "unobserved" | "inexact" | "unknown";

export const RESUMES: Record<Resume, Word> = {
  inexact: word(
    "≠",
    "not exact",
    "warn",
    "It does not go on as the run would have without the restart, or may not.",
    0,
  ),
  unknown: word("·", "unknown", "dim", "Its session does not say whether it goes on as the run would have.", 1),
  unobserved: word(
    "·",
    "not observed",
    "dim",
    "No logged value was computed twice, so nothing shows whether it is exact. Options(verify_resume=20) would.",
    2,
  ),
  observed: word(
    "✓",
    "observed exact",
    "good",
    "The steps that were computed again logged the same bits as before the restart.",
    3,
  ),
};

/** What a session says of its resume: silence is not a yes. */
export function resumeOf(session: Session | undefined): Resume {
  if (session?.resume_exact === false) return "inexact";
  if (session?.resume_check) return "observed";
  return session?.resume_exact === true ? "unobserved" : "unknown";
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

/** Why it is not exact, and what the steps show that were computed again; empty where neither is known. */
export function evidenceText(session: Session | undefined): string {
  const check = session?.resume_check;
  const why = resumeOf(session) === "inexact" ? reasonsText(session) : "";
  return [why, check && check.tag == null ? check.text : ""].filter(Boolean).join("; ");
}

/** `observed exact (3 of 3 recomputed losses equal)`, `not observed`, `not exact: why`, or `unknown`. */
export function resumeText(session: Session | undefined): string {
  const resume = resumeOf(session);
  const { label } = RESUMES[resume];
  const evidence = evidenceText(session);
  if (!evidence) return label;
  return resume === "observed" ? `${label} (${evidence})` : `${label}: ${evidence}`;
}
