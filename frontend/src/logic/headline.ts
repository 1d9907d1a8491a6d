/** What happened, when, and what it cost: facts in a few sentences. What is wrong, findings say, and only they. */
import type { RunDetail, WorkerHistory } from "../types/api";
import { formatAgo, formatAtLeast, formatCount, formatDuration, formatRate, plural, UNKNOWN } from "./format";
import { labelWords } from "./placement";
import { reasonOf } from "./words";
import { countWords } from "./workers";

export interface Sentence {
  sign: string;
  /** A few words that stand out. */
  lead: string;
  rest: string;
}

export function headline(run: RunDetail, workers: readonly WorkerHistory[], now: number): Sentence[] {
  return [
    stateSentence(run, now),
    launchSentence(run, now),
    restartSentence(run),
    checkpointSentence(run, now),
    stallSentence(run),
    silenceSentence(run),
    nonfiniteSentence(run),
    workerSentence(run, workers),
    placeSentence(run),
  ].filter((s): s is Sentence => s !== null);
}

function placeSentence(run: RunDetail): Sentence | null {
  const labels = labelWords(run.labels).join(", ");
  return run.place || labels ? { sign: "·", lead: run.place ?? "Labels", rest: labels } : null;
}

function workerSentence(run: RunDetail, workers: readonly WorkerHistory[]): Sentence | null {
  const present = workers.filter((worker) => worker.present);
  if (!present.length) return null;
  const counts: Record<string, number> = {};
  for (const { state } of present) counts[state] = (counts[state] ?? 0) + 1;
  const waiting = present.filter((worker) => worker.state === "waiting" && worker.waiting_for);
  const whom = new Set(waiting.map((worker) => worker.waiting_for));
  const why = whom.size === 1 ? ` for ${[...whom][0]}` : "";
  const last =
    run.state === "running" || run.state === "stalled" || Object.keys(counts).join() === "stopped"
      ? ""
      : "as last reported: ";
  return {
    sign: "⠿",
    lead: plural(present.length, "worker"),
    rest: `${last}${countWords(counts).replace("waiting", `waiting${why}`)}`,
  };
}

function stateSentence(run: RunDetail, now: number): Sentence {
  const when = formatAgo(run.last_event, now);
  const lead = run.step == null ? "No step known" : `Step ${formatCount(run.step)}`;
  if (run.state === "unknown" && !run.sessions.length && run.launch)
    return { sign: "·", lead, rest: "the program has written nothing yet" };
  const rate = run.state === "running" && run.steps_per_sec != null ? `${formatRate(run.steps_per_sec)} steps/s, ` : "";
  const seen = when === UNKNOWN ? "" : `last written ${when}`;
  const silent = run.state === "unknown" ? `${seen ? "; " : ""}its writer does not record how it ended` : "";
  return { sign: "·", lead, rest: `${rate}${seen}${silent}` };
}

/** Findings that say how the newest launch ended. */
const SAY_THE_LAUNCH = new Set(["failed", "restart_loop", "restarted"]);

/** How the newest launch by tb-supervisor run ended, or that it has begun and no session has. */
function launchSentence({ launch, findings, sessions }: RunDetail, now: number): Sentence | null {
  if (!launch) return null;
  if (launch.text === null) {
    const last = sessions.at(-1);
    const isNew = launch.started !== null && (last?.started ?? 0) < launch.started - 2;
    const lead = `Launch ${formatCount(launch.attempt)} by tb-supervisor`;
    return isNew ? { sign: "↻", lead, rest: `started ${formatAgo(launch.started, now)}; no session of it yet` } : null;
  }
  if (findings?.some(({ kind }) => SAY_THE_LAUNCH.has(kind))) return null;
  const [lead = "", ...rest] = launch.text.split(": ");
  return { sign: "↻", lead: `Launch ${formatCount(launch.attempt)} ${lead}`, rest: rest.join(": ") };
}

/** Those between sessions and those within one: recomputed steps are given for both together. */
function restartSentence(run: RunDetail): Sentence | null {
  const { restarts, recoveries } = run;
  const count = restarts.length + recoveries.length;
  if (count === 0) return null;
  // Of a run that is down now, the bucket holds that too.
  const between = sum(restarts.map((r) => r.downtime_secs));
  const down = Math.min(between, run.goodput.secs.infrastructure_recovery_from_disruption ?? between);
  const recovering = sum(recoveries.map((r) => r.secs));
  const again = run.goodput.secs.wasted_progress_from_disruption ?? 0;
  const reasons = new Map<string, number>();
  const causes = [
    ...restarts.map((r) => reasonOf(r).label),
    ...recoveries.map((r) => r.error.split(":", 1)[0] as string),
  ];
  for (const cause of causes) reasons.set(cause, (reasons.get(cause) ?? 0) + 1);
  const why = [...reasons].map(([label, n]) => (n === count ? label : `${formatCount(n)} ${label}`)).join(", ");
  const parts: string[] = [];
  if (restarts.length) parts.push(`${formatDuration(down)} down`);
  if (recoveries.length) parts.push(`${formatDuration(recovering)} recovering`);
  if (run.steps_lost > 0 || (run.steps_lost_most ?? 0) > 0) {
    parts.push(
      `${formatAtLeast(run.steps_lost, run.steps_lost_most)} ${run.steps_lost === 1 && run.steps_lost_most === 1 ? "step" : "steps"} recomputed${again > 0 ? ` (${formatDuration(again)})` : ""}`,
    );
  }
  const within = `${restarts.length ? `, ${formatCount(recoveries.length)} more` : ""} within a session`;
  return {
    sign: restarts.length ? "↻" : "↺",
    lead:
      plural(restarts.length || recoveries.length, "restart") +
      `${recoveries.length ? within : ""}${restarts.length && recoveries.length ? "," : ""} cost ${formatDuration(down + recovering + again)}`,
    rest: `${parts.join(", ")}; ${why === "not known" ? "why is not known" : why}`,
  };
}

const sum = (values: (number | null)[]): number => values.reduce<number>((a, b) => a + (b ?? 0), 0);

function checkpointSentence(run: RunDetail, now: number): Sentence | null {
  const { count, failed, newest_good: newest } = run.checkpoints;
  const sign = "◆";
  if (count === 0) return run.inferred ? null : { sign, lead: "No checkpoint yet", rest: "none was saved" };
  if (!newest) return { sign, lead: "No good checkpoint", rest: `all ${plural(count, "save")} failed` };
  const every = run.sessions.at(-1)?.checkpoint_interval_secs;
  const rhythm = every == null ? "" : `, every ${formatDuration(every)}`;
  const gone = newest.on_disk === false && !newest.damage ? `, ${newest.status.replace(/\.$/, "")}` : "";
  const bad = failed > 0 ? `; ${formatCount(failed)} of ${plural(count, "recorded save")} failed` : "";
  const rest = `${formatAgo(newest.at, now)}${rhythm}${gone}${bad}`;
  return { sign, lead: `Checkpoint of step ${formatCount(newest.step)}`, rest };
}

function stallSentence(run: RunDetail): Sentence | null {
  if (run.stalls === 0) return null;
  const secs = run.goodput.secs.stall ?? 0;
  const lost = secs > 0 ? `${formatDuration(secs)} without progress; ` : "";
  return {
    sign: "‖",
    lead: plural(run.stalls, "stall"),
    rest: `${lost}${run.stalls === 1 ? "its" : "their"} stacks are on this page`,
  };
}

function silenceSentence({ silences, goodput }: RunDetail): Sentence | null {
  const secs = goodput.secs.silent ?? sum(silences.map((silence) => silence.secs));
  const [first] = silences;
  if (!first || !(secs > 0)) return null;
  const why = silences.length > 1 ? `, ${plural(silences.length, "time")}` : `: ${first.why}`;
  return { sign: "○", lead: `Silent for ${formatDuration(secs)}`, rest: `the process did not run${why}` };
}

const NAMED_TAGS = 3;

/** Tags with values that are NaN or infinite. */
function nonfiniteSentence({ nonfinite_tags: tags }: RunDetail): Sentence | null {
  const [first] = tags;
  if (!first) return null;
  const sign = "·";
  if (tags.length > 1) {
    const names = tags.slice(0, NAMED_TAGS).map(({ tag }) => tag);
    const more = tags.length > NAMED_TAGS ? " …" : "";
    return {
      sign,
      lead: `${plural(tags.length, "tag")} with values that are NaN or infinite`,
      rest: names.join(", ") + more,
    };
  }
  const { values, first_step: from, last_step: to } = first;
  const steps = from === to ? `step ${formatCount(from)}` : `steps ${formatCount(from)} to ${formatCount(to)}`;
  const rest = `${plural(values, "value is", "values are")} NaN or infinite, ${steps}`;
  return { sign, lead: `Not finite: ${first.tag}`, rest };
}
