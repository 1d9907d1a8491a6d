/** What the pointer is on, in words. */
import type { AtRisk, Notice, Session, Silence, Stall, ThreadHistory } from "../types/api";
import type { Boundary } from "./boundaries";
import { brief, formatAtLeast, formatBytes, formatCount, formatDuration, formatMoment, plural } from "./format";
import type { Cluster, Marks } from "./marks";
import { isDamaged, isGood, isInDoubt, onDisk } from "./marks";
import type { Plot } from "./plot";
import type { RecoveryMark } from "./recoveries";
import { hasResumed, RESUMES, resumeOf, resumeText } from "./resume";
import { innermost, secondLook } from "./stalls";
import { OUTCOMES, reasonOf, THREAD_STATES, wordOf } from "./words";

/** Of restarts at one place, how many are listed. */
const MOST_ROWS = 8;

export interface Hover {
  title: string;
  rows: [string, string][];
  note?: string;
}

/** The rows that have a value. */
const rowsOf = (...rows: [name: string, value: string | false | null | undefined][]): Hover["rows"] =>
  rows.filter((row): row is [string, string] => Boolean(row[1]));

/** The same in one line, for who listens. */
export function spoken({ title, rows, note }: Hover): string {
  return [title, ...rows.map(([name, value]) => `${name}: ${value}`), note ?? ""].filter(Boolean).join("; ");
}

export function sessionHover(session: Session): Hover {
  const word = wordOf(OUTCOMES, session.outcome);
  const secs = session.started != null && session.ended != null ? session.ended - session.started : null;
  const { adopted, host, pid, skipped_checkpoints: skipped } = session;
  const readying = (session.starting_secs ?? 0) + (session.restoring_secs ?? 0);
  const rows = rowsOf(
    ["Started", formatMoment(session.started)],
    [session.outcome === "running" ? "Last seen" : "Ended", formatMoment(session.ended)],
    ["Lasted", formatDuration(secs)],
    ["Steps", `${formatCount(session.first_step)} to ${formatCount(session.last_step)}`],
    ["Model", adopted && "found alive in the parameter servers"],
    ["Restored", !adopted && session.restored_checkpoint],
    ["Resume", hasResumed(session) && resumeText(session)],
    ["Passed over", skipped.length > 0 && plural(skipped.length, "checkpoint")],
    ["Until training", readying > 0 && formatDuration(readying)],
    ["Host", host && (pid == null ? host : `${host}, pid ${pid}`)],
    ["Signal", session.signal],
    ["Error", session.error && brief(session.error)],
    ["Process", session.gone && "gone: killed, or it crashed"],
  );
  return {
    title: `${word.glyph} Session ${session.attempt}: ${word.label}`,
    rows,
    note: session.inferred ? "Inferred: its writer does not record it." : word.meaning,
  };
}

export function boundaryHover(boundary: Boundary): Hover {
  const { restart, adopted, after } = boundary;
  const word = reasonOf(restart);
  return {
    title: `↻ Restart ${boundary.number}`,
    rows: rowsOf(
      ["Before it", `${word.glyph} ${word.label}`],
      ["Started again", formatMoment(restart.at)],
      ["Downtime", formatDuration(restart.downtime_secs)],
      ["Last step", formatCount(restart.from_step)],
      ["Resumed at", formatCount(restart.to_step)],
      [
        "Recomputed",
        restart.rewind_steps == null
          ? "not known"
          : `${formatAtLeast(restart.rewind_steps, restart.rewind_steps_most)} steps`,
      ],
      ["Resume", resumeText(after)],
      ["Launch", restart.launch?.text],
    ),
    ...(adopted ? { note: ADOPTED } : restart.inferred ? { note: "Inferred from what was written." } : {}),
  };
}

/** Of several at one place, as on the axis of steps, each has a row. */
export function boundariesHover(boundaries: readonly Boundary[]): Hover {
  const [only] = boundaries;
  if (boundaries.length === 1 && only) return boundaryHover(only);
  const rows = boundaries
    .slice(0, MOST_ROWS)
    .map(({ number, restart, after }): [string, string] => [
      `↻ Restart ${number}`,
      `${reasonOf(restart).label}, ${formatMoment(restart.at)}, ${formatAtLeast(restart.rewind_steps ?? 0, restart.rewind_steps_most)} steps recomputed, ${formatDuration(restart.downtime_secs)} down, resume ${RESUMES[resumeOf(after)].label}`,
    ]);
  const more = boundaries.length - rows.length;
  return {
    title: `↻ ${plural(boundaries.length, "restart")} here`,
    rows,
    ...(more > 0 ? { note: `And ${formatCount(more)} more: the table has all.` } : {}),
  };
}

const ADOPTED = "The model was alive in the parameter servers and was kept: nothing lost.";

export function recoveryHover({ recovery, number }: RecoveryMark): Hover {
  return {
    title: `↺ Restart ${number} within a session`,
    rows: [
      ["Error", brief(recovery.error)],
      ["Lost", recovery.losses === 1 ? "once" : plural(recovery.losses, "time")],
      ["Went on", formatMoment(recovery.at)],
      ["Took", formatDuration(recovery.secs)],
      ["Last step", formatCount(recovery.from_step)],
      ["Resumed at", formatCount(recovery.to_step)],
      ["Recomputed", recovery.rewind_steps == null ? "not known" : plural(recovery.rewind_steps, "step")],
      ["Restored", recovery.restored_checkpoint ?? "no checkpoint"],
    ],
    note: "TensorFlow's session was lost with a process of the cluster, and created again; this session's process continued.",
  };
}

export const noticeHover = ({ severity, text, at }: Notice): Hover => ({
  title: `${severity}: ${brief(text)}`,
  rows: [["Said", formatMoment(at)]],
});

export function clusterHover(cluster: Cluster, plot: Plot, failedOnes: boolean): Hover {
  const { marks, placed } = plot;
  const wanted: number[] = [];
  for (let i = cluster.from; i < cluster.to; i++) {
    const mark = placed.index[i] as number;
    if (isGood(marks.flags[mark] as number) !== failedOnes) wanted.push(mark);
  }
  const [only] = wanted;
  return wanted.length === 1 && only !== undefined && marks.count[only] === 1
    ? markHover(marks, only)
    : crowdHover(marks, wanted, failedOnes);
}

const known = (value: number | undefined): number | null => (value === undefined || Number.isNaN(value) ? null : value);

function markHover(marks: Marks, i: number): Hover {
  const flags = marks.flags[i] as number;
  const there = onDisk(flags);
  return {
    title: isGood(flags) ? `◆ Checkpoint of step ${formatCount(known(marks.step[i]))}` : "✕ A save failed",
    rows: rowsOf(
      [isGood(flags) ? "Durable" : "Failed", formatMoment(known(marks.at[i]))],
      ["At step", !isGood(flags) && formatCount(known(marks.step[i]))],
      ["Size", formatBytes(known(marks.bytes[i]))],
      ["Took", formatDuration(known(marks.saveSecs[i]))],
      ["Held training up", formatDuration(known(marks.blockedSecs[i]))],
      ["Files", isDamaged(flags) ? "damaged" : there === null ? "not known" : there ? "on disk" : "deleted"],
      ["In doubt", isInDoubt(flags) && "the table of checkpoints says why"],
    ),
    ...(isGood(flags) ? {} : { note: brief(marks.errors.get(i) ?? "The table of checkpoints says why.") }),
  };
}

function crowdHover(marks: Marks, wanted: readonly number[], failedOnes: boolean): Hover {
  const steps = wanted.flatMap((i) => [marks.step[i], marks.lastStep[i]].map(known)).filter((s) => s !== null);
  const sum = (of: Float64Array): number => wanted.reduce((sum, i) => sum + (of[i] as number), 0);
  const mean = (of: Float64Array): number | null => {
    const timed = wanted.filter((i) => known(of[i]) !== null);
    const saves = timed.reduce((sum, i) => sum + (marks.count[i] as number), 0);
    return saves ? timed.reduce((sum, i) => sum + (of[i] as number) * (marks.count[i] as number), 0) / saves : null;
  };
  const count = sum(marks.count);
  return {
    title: failedOnes ? `✕ ${plural(count, "save")} failed` : `◆ ${plural(count, "checkpoint")}`,
    rows: rowsOf(
      ["From", formatMoment(known(marks.at[wanted[0] ?? 0]))],
      ["To", formatMoment(known(marks.lastAt[wanted.at(-1) ?? 0]))],
      [
        "Steps",
        steps.length ? `${formatCount(least(steps))} to ${formatCount(-least(steps.map((s) => -s)))}` : "not known",
      ],
      ["Took, mean", formatDuration(mean(marks.saveSecs))],
      ["Blocked, mean", formatDuration(mean(marks.blockedSecs))],
      ["On disk", !failedOnes && formatCount(sum(marks.onDisk))],
    ),
    note: `${failedOnes ? newestError(marks, wanted) : ""}Zoom in to see each one.`,
  };
}

function newestError(marks: Marks, wanted: readonly number[]): string {
  const error = wanted.flatMap((i) => marks.errors.get(i) ?? []).at(-1);
  return error ? `The newest: ${brief(error)} ` : "";
}

const least = (values: readonly number[]): number => values.reduce((a, b) => Math.min(a, b), Infinity);

export function silenceHover(silence: Silence): Hover {
  return {
    title: `○ Silent for ${formatDuration(silence.secs)}`,
    rows: [
      ["Since", formatMoment(silence.since)],
      ["Until", formatMoment(silence.until)],
    ],
    note: `The process did not run: ${silence.why}.`,
  };
}

export function riskHover(risk: AtRisk): Hover {
  return {
    title: `${plural(risk.steps, "step")} at risk`,
    rows: [
      ["Training time", formatDuration(risk.secs)],
      ["Last checkpoint", risk.saved_step == null ? "none" : `step ${formatCount(risk.saved_step)}`],
    ],
    note: "They are in no checkpoint: a restart does them again.",
  };
}

export function stallHover(stall: Stall): Hover {
  const line = innermost(stall);
  const how = secondLook(stall);
  return {
    title: `‖ Stalled for ${formatDuration(stall.secs)}`,
    rows: rowsOf(
      ["Phase", stall.phase],
      ["Since", formatMoment(stall.since)],
      ["Until", stall.until == null ? "it lasts" : formatMoment(stall.until)],
      ["At step", formatCount(stall.step)],
      ["Hang timeout", formatDuration(stall.timeout_secs)],
      ["Which one", stall.verdict],
      ["Line", line && brief(line)],
      ["It is", how],
    ),
    note: Object.keys(stall.stacks).length ? "Click for the Python stacks." : "No stacks were taken.",
  };
}

/** A thread at a moment: the span around it, and the tick next to it where one is near. */
export function threadHover(history: ThreadHistory, at: number, near: number): Hover {
  const span = history.spans.find(([since, until]) => at >= since && at <= until);
  const tick = history.seen_ticks.reduce<(typeof history.seen_ticks)[number] | null>(
    (best, t) => (Math.abs(t[0] - at) <= near && (!best || Math.abs(t[0] - at) < Math.abs(best[0] - at)) ? t : best),
    null,
  );
  const word = wordOf(THREAD_STATES, span?.[2] ?? history.state);
  const error = span?.[4] ?? history.last_error;
  const rows = rowsOf(
    ["Every", history.interval_secs == null ? "whenever there is work" : formatDuration(history.interval_secs)],
    ["Ticks", `${formatCount(history.ticks)}, ${formatCount(history.failures)} failed`],
    ["Late by", span && span[3] > 0 && formatDuration(span[3])],
    [tick?.[2] ? "Tick" : "✕ Failed tick", tick && `${formatMoment(tick[0])}, ${formatDuration(tick[1])}`],
    [span?.[4] ? "Error" : "Last error", error],
  );
  return { title: `${word.glyph} ${history.name}: ${word.label}`, rows, note: word.meaning };
}

export function cutHover(secs: number): Hover {
  return { title: `⫽ ${formatDuration(secs)} left out`, rows: [], note: "Nothing ran; the axis is clipped here." };
}
