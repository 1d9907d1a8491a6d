/** What happened, when, and what it cost: a few sentences, worst first where it matters. */
import type { RunDetail } from "../types/api";
import { formatAgo, formatCount, formatDuration, formatRate, plural, UNKNOWN } from "./format";
import type { Tone } from "./words";
import { OUTCOMES, RUN_STATES, wordOf } from "./words";

export interface Sentence {
  tone: Tone;
  /** A few words that stand out. */
  lead: string;
  rest: string;
}

export function headline(run: RunDetail, now: number): Sentence[] {
  return [stateSentence(run, now), restartSentence(run), checkpointSentence(run, now), stallSentence(run), problemSentence(run)].filter(
    (s): s is Sentence => s !== null,
  );
}

function stateSentence(run: RunDetail, now: number): Sentence {
  const word = wordOf(RUN_STATES, run.state);
  const last = run.sessions.at(-1);
  const when = formatAgo(run.last_event, now);
  const lead = run.step == null ? "No step known" : `Step ${formatCount(run.step)}`;
  switch (run.state) {
    case "running": {
      const rate = run.steps_per_sec == null ? "" : `${formatRate(run.steps_per_sec)} steps/s, `;
      return { tone: word.tone, lead, rest: `${rate}last heard of ${when}` };
    }
    case "stalled":
      return { tone: word.tone, lead, rest: `no progress since ${formatAgo(last?.last_progress ?? null, now)}` };
    case "failed":
      return { tone: word.tone, lead, rest: `${last?.error ?? "an error ended it"}, ${when}` };
    case "lost":
      return { tone: word.tone, lead, rest: `silent for ${when.replace(/ ago$/, "")}: killed, or its machine died` };
    case "unknown":
      return { tone: word.tone, lead, rest: `${when === UNKNOWN ? "" : `last written ${when}; `}its writer does not tell how it ended` };
    default:
      return { tone: word.tone, lead, rest: `${last?.signal ? `by ${last.signal}, ` : ""}${when}` };
  }
}

function restartSentence(run: RunDetail): Sentence | null {
  const count = run.restarts.length;
  if (count === 0) return null;
  // Of a run that is down now, the bucket holds that too.
  const between = sum(run.restarts.map((r) => r.downtime_secs));
  const down = Math.min(between, run.goodput.secs["infrastructure_recovery_from_disruption"] ?? between);
  const again = run.goodput.secs["wasted_progress_from_disruption"] ?? 0;
  const reasons = new Map<string, number>();
  for (const restart of run.restarts) {
    const label = wordOf(OUTCOMES, restart.reason).label;
    reasons.set(label, (reasons.get(label) ?? 0) + 1);
  }
  const why = [...reasons].map(([label, n]) => (n === count ? label : `${formatCount(n)} ${label}`)).join(", ");
  const parts = [`${formatDuration(down)} down`];
  if (run.steps_lost > 0) {
    parts.push(`${plural(run.steps_lost, "step")} done again${again > 0 ? ` (${formatDuration(again)})` : ""}`);
  }
  return {
    tone: run.restarts.some((r) => wordOf(OUTCOMES, r.reason).tone === "bad") ? "bad" : "warn",
    lead: `${plural(count, "restart")} cost ${formatDuration(down + again)}`,
    rest: `${parts.join(", ")}; ${why === "not known" ? "why is not known" : why}`,
  };
}

const sum = (values: (number | null)[]): number => values.reduce<number>((a, b) => a + (b ?? 0), 0);

function checkpointSentence(run: RunDetail, now: number): Sentence | null {
  const { count, failed, newest_good: newest } = run.checkpoints;
  if (count === 0) {
    return run.inferred ? null : { tone: "warn", lead: "No checkpoint yet", rest: "a kill would cost everything" };
  }
  const every = run.sessions.at(-1)?.checkpoint_interval_secs;
  const bad = failed > 0 ? `; ${formatCount(failed)} of ${plural(count, "save")} failed` : "";
  if (!newest) return { tone: "bad", lead: "No good checkpoint", rest: `all ${plural(count, "save")} failed` };
  const age = newest.at == null ? null : now - newest.at;
  const late = run.state === "running" && every != null && age != null && age > 2 * every;
  const rhythm = every == null ? "" : `, every ${formatDuration(every)}`;
  return {
    tone: late || failed > 0 ? "warn" : "calm",
    lead: `Checkpoint of step ${formatCount(newest.step)}`,
    rest: `${formatAgo(newest.at, now)}${rhythm}${late ? ": overdue" : ""}${bad}`,
  };
}

function stallSentence(run: RunDetail): Sentence | null {
  if (run.stalls === 0) return null;
  const secs = run.goodput.secs["stall"] ?? 0;
  return {
    tone: "warn",
    lead: plural(run.stalls, "stall"),
    rest: secs > 0 ? `${formatDuration(secs)} without progress; stacks below` : "stacks below",
  };
}

function problemSentence(run: RunDetail): Sentence | null {
  return run.problem === null ? null : { tone: "warn", lead: "Not read in full", rest: run.problem };
}
