/** What a worker was at at a moment, in words; and what many were at together. */
import type { WorkerHistory } from "../types/api";
import { brief, formatCount, formatDuration, formatMoment, plural } from "./format";
import type { Hover } from "./hover";
import { WORKER_STATES, wordOf } from "./words";
import type { WorkerLane } from "./workers";
import { countWords, isTrouble } from "./workers";

/** How many names are listed. */
const MOST_NAMES = 6;

/** The span around a moment, or next to it; of two that touch, the later. */
function spanAt(worker: WorkerHistory, at: number, near: number): WorkerHistory["spans"][number] | undefined {
  const within = (room: number) => worker.spans.findLast(([since, until]) => at >= since - room && at <= until + room);
  return within(0) ?? within(near);
}

export function workerHover(worker: WorkerHistory, at: number, near: number): Hover | null {
  const span = spanAt(worker, at, near);
  if (!span) return null;
  const [since, until, state, started, again, spanError] = span;
  const last = span === worker.spans.at(-1);
  const word = wordOf(WORKER_STATES, state);
  const rows: [string, string][] = [["Since", `${formatMoment(since)}, for ${formatDuration(until - since)}`]];
  const add = (name: string, value: string | null): void => {
    if (value) rows.push([name, value]);
  };
  if (last) {
    add("Last seen", formatMoment(worker.last_seen));
    if (state === "waiting") add("Waits for", worker.waiting_for);
    add("Phase", worker.phase);
    if (worker.place?.location) add("Makes no progress at", brief(worker.place.location));
    if (worker.step != null) add("Step", formatCount(worker.step));
    if (worker.steps != null) add("Steps of its own", formatCount(worker.steps));
  }
  if (started != null) add(again ? "↻ Started again" : "Process since", formatMoment(started));
  if (worker.starts > 1) add("Processes", formatCount(worker.starts));
  if (last && worker.host) add("Host", worker.pid == null ? worker.host : `${worker.host}, pid ${worker.pid}`);
  add("Error", brief(spanError ?? (last ? worker.error : null) ?? ""));
  return {
    title: `${word.glyph} ${worker.name}: ${word.label}`,
    rows,
    note: last ? word.meaning : `Earlier: it is ${wordOf(WORKER_STATES, worker.state).label} now.`,
  };
}

/** A lane for many at a moment: how many were in which state, and who was in trouble. */
export function crowdHover(lane: WorkerLane, at: number, near: number): Hover | null {
  const span = lane.crowd?.find(({ since, until }) => at >= since - near && at <= until + near);
  if (!span) return null;
  const troubled = lane.workers.flatMap((worker) => {
    const state = spanAt(worker, at, 0)?.[2];
    return state && isTrouble(state) ? [`${worker.name} ${wordOf(WORKER_STATES, state).label}`] : [];
  });
  const more = troubled.length > MOST_NAMES ? `, and ${formatCount(troubled.length - MOST_NAMES)} more` : "";
  return {
    title: plural(lane.workers.length, "worker"),
    rows: [
      ["At", formatMoment(at)],
      ["States", countWords(span.counts)],
      ...(troubled.length
        ? ([["In trouble", troubled.slice(0, MOST_NAMES).join(", ") + more]] as [string, string][])
        : []),
    ],
    note: "Show all of them for a lane each.",
  };
}
