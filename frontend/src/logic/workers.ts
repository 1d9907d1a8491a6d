/** The cluster's other processes as lanes: each its own where they are few, else those with trouble, and the rest as one. */
import type { WorkerHistory, WorkerState } from "../types/api";
import { brief, formatAgo, formatCount, plural, roughDuration } from "./format";
import { WORKER_STATES, wordOf } from "./words";

/** The largest number of lanes. With more workers, those in trouble get them. */
export const FEW = 8;

export interface WorkerLane {
  name: string;
  workers: WorkerHistory[];
  /** What those of a lane for many were at together; null in a lane for one. */
  crowd: CrowdSpan[] | null;
}

/** How many were in which state in a stretch of time in which none changed. */
export interface CrowdSpan {
  since: number;
  until: number;
  counts: Partial<Record<WorkerState, number>>;
}

export const isTrouble = (state: string): boolean => wordOf(WORKER_STATES, state as WorkerState).rank <= 2;

/** Those that need somebody first, then those that have had trouble, the latest first; in their own order else. */
export function worstFirst(workers: readonly WorkerHistory[]): WorkerHistory[] {
  return workers
    .map((worker, i) => {
      const trouble = lastTrouble(worker);
      const rank = worker.sick ? wordOf(WORKER_STATES, worker.state).rank : trouble > 0 ? 3 : 4;
      return { worker, i, rank, trouble: rank === 3 ? trouble : 0 };
    })
    .sort((a, b) => a.rank - b.rank || b.trouble - a.trouble || a.i - b.i)
    .map((item) => item.worker);
}

/** Those that somebody should look at now, worst first. */
export const sickOnes = (workers: readonly WorkerHistory[]): WorkerHistory[] =>
  worstFirst(workers).filter(({ sick }) => sick);

/** When it was in trouble or was started again, the last time; 0 for never. */
function lastTrouble(worker: WorkerHistory): number {
  const span = worker.spans.findLast(([, , state, , again]) => again || isTrouble(state));
  return span ? (isTrouble(span[2]) ? span[1] : span[0]) : 0;
}

export function workerLanes(workers: readonly WorkerHistory[], all: boolean): WorkerLane[] {
  const own = (worker: WorkerHistory): WorkerLane => ({ name: worker.name, workers: [worker], crowd: null });
  if (workers.length <= FEW) return workers.map(own);
  const sorted = worstFirst(workers);
  if (all) return sorted.map(own);
  const first = sorted.filter((worker) => worker.sick || lastTrouble(worker) > 0).slice(0, FEW);
  const rest = sorted.slice(first.length);
  const name = first.length ? `${formatCount(rest.length)} others` : plural(rest.length, "worker");
  return [...first.map(own), { name, workers: rest, crowd: crowdOf(rest) }];
}

/** What many were at, between one change of any of them and the next. */
export function crowdOf(workers: readonly WorkerHistory[]): CrowdSpan[] {
  const changes: [at: number, state: WorkerState, by: number][] = [];
  for (const worker of workers) {
    for (const [since, until, state] of worker.spans)
      if (until > since) changes.push([since, state, 1], [until, state, -1]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  const spans: CrowdSpan[] = [];
  const counts: Partial<Record<WorkerState, number>> = {};
  changes.forEach(([at, state, by], i) => {
    counts[state] = (counts[state] ?? 0) + by;
    if (!counts[state]) delete counts[state];
    const next = changes[i + 1]?.[0];
    if (next !== undefined && next > at && Object.keys(counts).length)
      spans.push({ since: at, until: next, counts: { ...counts } });
  });
  return spans;
}

/** States with their numbers, worst first: `1 lost, 92 running`. */
export function countWords(counts: Partial<Record<WorkerState, number>>): string {
  return Object.entries(counts)
    .map(([state, count]) => ({ word: wordOf(WORKER_STATES, state as WorkerState), count }))
    .sort((a, b) => a.word.rank - b.word.rank)
    .map(({ word, count }) => `${formatCount(count)} ${word.label}`)
    .join(", ");
}

/** Since when it is in its state; null when unknown. */
export function stateSince(worker: WorkerHistory): number | null {
  let since: number | null = null;
  for (let i = worker.spans.length - 1; i >= 0; i--) {
    const [from, until, state] = worker.spans[i] as WorkerHistory["spans"][number];
    if (state !== worker.state || (since !== null && until < since)) break;
    since = from;
  }
  return since;
}

/** A worker that needs somebody, in a few words. */
export function troubleWords(worker: WorkerHistory, now: number): string {
  const label = `${worker.name} ${wordOf(WORKER_STATES, worker.state).label}`;
  if (worker.state === "lost") return `${label}, last seen ${formatAgo(worker.last_seen, now)}`;
  if (worker.state === "failed") return worker.error ? `${label}: ${brief(worker.error, 120)}` : label;
  const since = stateSince(worker);
  return since === null ? label : `${label} for ${roughDuration(Math.max(0, now - since))}`;
}
