/** What happened, when, and what it cost: a few sentences, worst first where it matters. */
import type { RunDetail, WorkerHistory } from "../types/api";
import {
  brief,
  formatAgo,
  formatAtLeast,
  formatCount,
  formatDuration,
  formatRate,
  plural,
  roughDuration,
  UNKNOWN,
} from "./format";
import { silenceCause } from "./hover";
import { RESUMES, reasonsText, resumeOf } from "./resume";
import type { Tone } from "./words";
import { RUN_STATES, reasonOf, WORKER_STATES, wordOf } from "./words";
import { countWords, sickOnes, troubleWords } from "./workers";

export interface Sentence {
  tone: Tone;
  /** Before it; by default the tone's. */
  sign?: string;
  /** A few words that stand out. */
  lead: string;
  rest: string;
}

/** How many workers in trouble are named. */
const MOST_NAMES = 3;

export function headline(run: RunDetail, workers: readonly WorkerHistory[], now: number): Sentence[] {
  const cluster = workerSentence(run, workers, now);
  const urgent = cluster?.tone === "bad" || cluster?.tone === "warn";
  return [
    stateSentence(run, now),
    urgent ? cluster : null,
    launchSentence(run, now),
    resumeSentence(run),
    restartSentence(run),
    checkpointSentence(run, now),
    riskSentence(run),
    stallSentence(run),
    silenceSentence(run),
    urgent ? null : cluster,
    problemSentence(run),
    droppedSentence(run),
  ].filter((s): s is Sentence => s !== null);
}

function workerSentence(run: RunDetail, workers: readonly WorkerHistory[], now: number): Sentence | null {
  const present = workers.filter((worker) => worker.present);
  if (!present.length) return null;
  const sick = sickOnes(present);
  if (sick.length) {
    const named = sick.slice(0, MOST_NAMES).map((worker) => troubleWords(worker, now));
    if (sick.length > MOST_NAMES) named.push(`${formatCount(sick.length - MOST_NAMES)} more`);
    const tones = sick.map((worker) => wordOf(WORKER_STATES, worker.state).tone);
    return {
      tone: tones.includes("bad") ? "bad" : "warn",
      sign: wordOf(WORKER_STATES, (sick[0] as WorkerHistory).state).glyph,
      lead: `${formatCount(sick.length)} of ${plural(present.length, "worker")} in trouble`,
      rest: named.join("; "),
    };
  }
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
    tone: "calm",
    sign: "⠿",
    lead: plural(present.length, "worker"),
    rest: `${last}${countWords(counts).replace("waiting", `waiting${why}`)}`,
  };
}

function stateSentence(run: RunDetail, now: number): Sentence {
  const word = wordOf(RUN_STATES, run.state);
  const last = run.sessions.at(-1);
  const when = formatAgo(run.last_event, now);
  const lead = run.step == null ? "No step known" : `Step ${formatCount(run.step)}`;
  switch (run.state) {
    case "running": {
      const rate = run.steps_per_sec == null ? "" : `${formatRate(run.steps_per_sec)} steps/s, `;
      return { tone: word.tone, lead, rest: `${rate}last seen ${when}` };
    }
    case "stalled":
      return { tone: word.tone, lead, rest: `no progress for ${roughDuration(now - (last?.last_progress ?? NaN))}` };
    case "failed":
      return { tone: word.tone, lead, rest: `${brief(run.failure ?? last?.error ?? "an error ended it")}, ${when}` };
    case "lost":
      if (last?.gone)
        return { tone: word.tone, lead, rest: `its process is gone: killed, or it crashed; last written ${when}` };
      return { tone: word.tone, lead, rest: `silent for ${when.replace(/ ago$/, "")}: killed, or its machine died` };
    case "unknown":
      if (!run.sessions.length && run.launch)
        return { tone: word.tone, lead, rest: "the program has written nothing yet" };
      return {
        tone: word.tone,
        lead,
        rest: `${when === UNKNOWN ? "" : `last written ${when}; `}its writer does not record how it ended`,
      };
    default:
      return { tone: word.tone, lead, rest: `${last?.signal ? `by ${last.signal}, ` : ""}${when}` };
  }
}

/** How the newest launch by tb-supervisor run ended, or that it has begun and no session has. */
function launchSentence({ launch, failure, sessions }: RunDetail, now: number): Sentence | null {
  if (!launch || (launch.text !== null && launch.text === failure)) return null;
  if (launch.text === null) {
    const last = sessions.at(-1);
    const isNew = launch.started !== null && (last?.started ?? 0) < launch.started - 2;
    const lead = `Launch ${formatCount(launch.attempt)} by tb-supervisor`;
    return isNew
      ? { tone: "warn", sign: "↻", lead, rest: `started ${formatAgo(launch.started, now)}; no session of it yet` }
      : null;
  }
  const [lead, rest = ""] = splitOnce(launch.text, ": ");
  const planned = launch.cause === "completed" || launch.cause === "stopped";
  const tone = planned ? "calm" : launch.action === "restart" ? "warn" : "bad";
  return { tone, sign: "↻", lead: `Launch ${formatCount(launch.attempt)} ${lead}`, rest };
}

/** Why the newest session does not go on as the run would have; nothing where it does, or does not say. */
function resumeSentence({ sessions }: RunDetail): Sentence | null {
  const last = sessions.at(-1);
  if (resumeOf(last) !== "inexact") return null;
  return {
    tone: "warn",
    sign: RESUMES.inexact.glyph,
    lead: "Not an exact resume",
    rest: reasonsText(last) || "no reason is given",
  };
}

function splitOnce(text: string, by: string): [string, string?] {
  const at = text.indexOf(by);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + by.length)];
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
    tone: restarts.some((r) => reasonOf(r).tone === "bad") ? "bad" : "warn",
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
  if (count === 0) {
    return run.inferred ? null : { tone: "warn", lead: "No checkpoint yet", rest: "a kill would cost everything" };
  }
  const every = run.sessions.at(-1)?.checkpoint_interval_secs;
  const bad = failed > 0 ? `; ${formatCount(failed)} of ${plural(count, "save")} failed` : "";
  if (!newest) return { tone: "bad", lead: "No good checkpoint", rest: `all ${plural(count, "save")} failed` };
  const age = newest.at == null ? null : now - newest.at;
  const late = run.state === "running" && every != null && age != null && age > 2 * every;
  const gone = newest.damage || newest.doubt || newest.on_disk === false ? `, ${newest.status.replace(/\.$/, "")}` : "";
  const good = run.checkpoints.last_good;
  const spoiled = newest.damage || newest.doubt;
  const last = !spoiled ? "" : good ? `; last good one: step ${formatCount(good.step)}` : "; there is no good one";
  const rhythm = every == null ? "" : `, every ${formatDuration(every)}`;
  return {
    tone: late || failed > 0 || gone ? "warn" : "calm",
    lead: `Checkpoint of step ${formatCount(newest.step)}`,
    rest: `${formatAgo(newest.at, now)}${rhythm}${gone}${late ? ": overdue" : ""}${last}${bad}`,
  };
}

function stallSentence(run: RunDetail): Sentence | null {
  if (run.stalls === 0) return null;
  const secs = run.goodput.secs.stall ?? 0;
  return {
    tone: "warn",
    lead: plural(run.stalls, "stall"),
    rest: secs > 0 ? `${formatDuration(secs)} without progress; stacks below` : "stacks below",
  };
}

/** What is lost unless something still has it. */
function riskSentence({ at_risk: risk }: RunDetail): Sentence | null {
  if (!risk) return null;
  const since =
    risk.saved_step == null
      ? "no checkpoint holds any"
      : `after the checkpoint of step ${formatCount(risk.saved_step)}`;
  return {
    tone: "bad",
    lead: `${plural(risk.steps, "step")} at risk`,
    rest: `${formatDuration(risk.secs)} of training, ${since}`,
  };
}

function silenceSentence({ silences, goodput }: RunDetail): Sentence | null {
  const secs = goodput.secs.silent ?? sum(silences.map((silence) => silence.secs));
  const [first] = silences;
  if (!first || !(secs > 0)) return null;
  const why = silences.length > 1 ? `, ${plural(silences.length, "time")}` : `: ${silenceCause(first)}`;
  return {
    tone: "warn",
    sign: "○",
    lead: `Silent for ${formatDuration(secs)}`,
    rest: `the process did not run${why}`,
  };
}

function problemSentence(run: RunDetail): Sentence | null {
  // What was beyond a limit has a sentence of its own.
  if (run.problem === null || run.problem.includes(LIMITS)) return null;
  return { tone: "warn", lead: "Not read in full", rest: run.problem };
}

const LIMITS = "docs/limits.md";

/** What was beyond a limit, what is missing altogether first. Counted is how often something was dropped. */
const DROPPED: [string, string][] = [
  ["events", "events"],
  ["sessions", "sessions"],
  ["history", "older history"],
];

function droppedSentence({ dropped }: RunDetail): Sentence | null {
  const words = DROPPED.filter(([kind]) => dropped[kind]).map(
    ([kind, name]) => `${name} ${formatCount(dropped[kind] ?? 0)} x`,
  );
  if (!words.length) return null;
  return {
    tone: "warn",
    lead: "Not shown",
    rest: `${words.join(", ")} (more than the limits of this page: ${LIMITS})`,
  };
}
