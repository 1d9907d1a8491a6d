/** All that is drawn over the one axis, placed on it: made again when data or axis change, not on zoom. */
import type { Notice, RunDetail, Stall, ThreadHistory, WorkerHistory } from "../types/api";
import type { Axis, AxisKind } from "./axis";
import { hasWallTime, makeAxis } from "./axis";
import type { Boundary } from "./boundaries";
import { boundariesOf } from "./boundaries";
import type { Marks, PlacedMarks } from "./marks";
import { isGood, placeMarks } from "./marks";
import type { Way } from "./progress";
import { wallAt, waysOf } from "./progress";
import type { RecoveryMark } from "./recoveries";
import { recoveryMarksOf } from "./recoveries";
import type { View } from "./view";
import type { WorkerLane } from "./workers";
import { workerLanes } from "./workers";

export interface Bar {
  lo: number;
  hi: number;
  row: number;
}

export interface Lane {
  name: string;
  /** One history for each session that had the thread, with the session's index. */
  histories: { history: ThreadHistory; session: number }[];
}

export interface Plot {
  detail: RunDetail;
  axis: Axis;
  ways: Way[];
  /** One per session; null where its place is not known. */
  bars: (Bar | null)[];
  barRows: number;
  boundaries: Boundary[];
  recoveries: RecoveryMark[];
  marks: Marks;
  placed: PlacedMarks;
  stalls: Stall[];
  notices: (Notice & { x: number })[];
  /** The stretch of the last session whose steps are in no checkpoint. */
  risk: View | null;
  lanes: Lane[];
  workers: WorkerHistory[];
  workerLanes: WorkerLane[];
  sessionIndex: Map<string, number>;
}

const MOST_ROWS = 6;

export function makePlot(
  detail: RunDetail,
  marks: Marks,
  stalls: Stall[],
  threads: readonly ThreadHistory[],
  workers: WorkerHistory[],
  wanted: AxisKind,
  allWorkers = false,
): Plot {
  const { sessions } = detail;
  const kind = hasWallTime(sessions) ? wanted : "step";
  const { at, step } = goodOnes(marks);
  const ways = waysOf(sessions, at, step);
  const axis = makeAxis(kind, sessions, ways);
  const bars = sessions.map((session): Bar | null => {
    const { started, ended, first_step: first, last_step: last } = session;
    if (kind === "step") return first == null || last == null ? null : { lo: first, hi: Math.max(first, last), row: 0 };
    if (started == null || started <= 0) return null;
    return { lo: axis.ofWall(started), hi: axis.ofWall(Math.max(started, ended ?? started)), row: 0 };
  });
  const known = bars.filter((bar): bar is Bar => bar !== null);
  // What would overlap by no more than a hair stays in one row.
  const slack = (axis.all.hi - axis.all.lo) * 1e-4;
  const packed = packRows(
    known.map((bar) => [bar.lo, Math.max(bar.lo, bar.hi - slack)] as const),
    MOST_ROWS,
  );
  for (const [i, bar] of known.entries()) bar.row = packed.rows[i] ?? 0;
  const sessionIndex = new Map(sessions.map((session, i) => [session.id, i]));
  return {
    detail,
    axis,
    ways,
    bars,
    risk: riskOf(detail, ways, axis),
    barRows: packed.count,
    marks,
    placed: placeOn(axis, marks),
    stalls,
    notices: detail.notices.map((notice) => ({ ...notice, x: axis.ofWall(notice.since) })),
    workers,
    sessionIndex,
    boundaries: boundariesOf(detail.restarts, sessions, ways, axis),
    recoveries: recoveryMarksOf(detail.recoveries, sessions, ways, axis),
    lanes: lanesOf(threads, sessionIndex),
    workerLanes: workerLanes(workers, allWorkers),
  };
}

function riskOf({ at_risk: risk, sessions }: RunDetail, ways: readonly Way[], axis: Axis): View | null {
  const last = sessions.at(-1);
  const way = ways.at(-1);
  if (!risk || !last || !way || last.ended == null) return null;
  const saved = risk.saved_step ?? last.first_step;
  if (axis.kind === "step") return saved == null || last.last_step == null ? null : { lo: saved, hi: last.last_step };
  const since = saved == null ? last.started : wallAt(way, saved);
  const from = Math.max(since ?? NaN, last.started ?? NaN);
  return from < last.ended ? { lo: axis.ofWall(from), hi: axis.ofWall(last.ended) } : null;
}

/** When a session was at a step, where no record gives it. */
export function momentOf(plot: Plot, step: number, session: number | undefined): number {
  const way = session === undefined ? undefined : plot.ways[session];
  return way ? wallAt(way, step) : NaN;
}

/** The session that ran at a moment: of several the last that had begun. */
export function sessionAt(plot: Plot, at: number): number {
  return Math.max(
    0,
    plot.detail.sessions.findLastIndex(({ started }) => started != null && started <= at),
  );
}

const placeMoment = (axis: Axis, at: number): number => (at > 0 ? axis.ofWall(at) : NaN);

const placeOn = (axis: Axis, marks: Marks): PlacedMarks =>
  placeMarks(marks, (at, step) => (axis.kind === "step" ? step : placeMoment(axis, at)));

/** The same with other marks, as fine as they are looked at. */
export const withMarks = (plot: Plot, marks: Marks): Plot => ({ ...plot, marks, placed: placeOn(plot.axis, marks) });

function goodOnes(marks: Marks): { at: number[]; step: number[] } {
  const at: number[] = [];
  const step: number[] = [];
  const add = (moment: number | undefined, s: number | undefined): void => {
    if (moment === undefined || s === undefined || Number.isNaN(moment) || Number.isNaN(s)) return;
    at.push(moment);
    step.push(s);
  };
  for (let i = 0; i < marks.length; i++) {
    if (!isGood(marks.flags[i] as number)) continue;
    add(marks.at[i], marks.step[i]);
    if ((marks.count[i] as number) > 1) add(marks.lastAt[i], marks.lastStep[i]);
  }
  return { at, step };
}

function lanesOf(threads: readonly ThreadHistory[], index: Map<string, number>): Lane[] {
  const lanes = new Map<string, Lane>();
  for (const history of threads) {
    const lane = lanes.get(history.name) ?? { name: history.name, histories: [] };
    lane.histories.push({ history, session: index.get(history.session) ?? 0 });
    lanes.set(history.name, lane);
  }
  return [...lanes.values()];
}

/** Bars that overlap go below each other: the row of each bar, in their order, is the first in which it fits. At most
 * `most` rows; the rest share the last. */
export function packRows(
  bars: readonly (readonly [number, number])[],
  most: number,
): { rows: number[]; count: number } {
  const order = bars.map((_, i) => i).sort((a, b) => (bars[a]?.[0] ?? 0) - (bars[b]?.[0] ?? 0) || a - b);
  const ends: number[] = [];
  const rows = new Array<number>(bars.length).fill(0);
  for (const i of order) {
    const [lo, hi] = bars[i] as readonly [number, number];
    let row = ends.findIndex((end) => end <= lo);
    if (row < 0) row = Math.min(ends.length, most - 1);
    ends[row] = Math.max(ends[row] ?? -Infinity, hi);
    rows[i] = row;
  }
  return { rows, count: Math.max(1, ends.length) };
}
