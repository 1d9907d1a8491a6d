/** The one horizontal axis: wall time, running time with gaps clipped, or steps. */
import type { Session } from "../types/api";
import type { Way } from "./progress";
import { stepAt } from "./progress";
import { interpolate, lowerBound } from "./search";
import type { Tick } from "./ticks";
import { clockTicks, durationTicks, stepTicks } from "./ticks";
import type { View } from "./view";

export type AxisKind = "wall" | "relative" | "step";

/** A stretch in which nothing ran, drawn shorter than it was. */
export interface Cut {
  lo: number;
  hi: number;
  secs: number;
}

export interface Axis {
  kind: AxisKind;
  all: View;
  cuts: Cut[];
  /** Where a moment is; of sessions that overlap in steps, in the one given. */
  ofWall(at: number, session?: number): number;
  /** The moment of a place; null on the axis of steps. */
  toWall(x: number): number | null;
  ticks(view: View, most: number): Tick[];
}

/** Clipped gaps keep this share of the running time each. */
const GAP_SHARE = 0.015;

export function makeAxis(kind: AxisKind, sessions: readonly Session[], ways: readonly Way[]): Axis {
  if (kind === "step") return stepAxis(sessions, ways);
  return kind === "relative" ? relativeAxis(sessions) : wallAxis(sessions);
}

/** Whether the run's moments are known at all: some writers leave them 0. */
export function hasWallTime(sessions: readonly Session[]): boolean {
  return sessions.some((session) => (session.started ?? 0) > 0);
}

/** Beyond this share of the wall time in which nothing ran, gaps are clipped by default. */
const MOSTLY_IDLE = 0.7;

/** The axis that shows most of a run: wall time, unless hardly anything of it is anything but gaps. */
export function defaultAxis(sessions: readonly Session[]): AxisKind {
  const stretches = stretchesOf(sessions);
  const wall = (stretches.at(-1)?.[1] ?? 0) - (stretches[0]?.[0] ?? 0);
  const running = stretches.reduce((sum, [start, end]) => sum + end - start, 0);
  return running > 0 && running < (1 - MOSTLY_IDLE) * wall ? "relative" : "wall";
}

/** A stretch with some room at both ends; `least`: how wide it is where it would be a point. */
export function padded(lo: number, hi: number, least: number): View {
  if (!(hi > lo)) return { lo: lo - least / 2, hi: lo + least / 2 };
  const room = (hi - lo) * 0.01;
  return { lo: lo - room, hi: hi + room };
}

function wallAxis(sessions: readonly Session[]): Axis {
  const stretches = stretchesOf(sessions);
  const first = stretches[0]?.[0] ?? 0;
  const last = stretches.at(-1)?.[1] ?? 1;
  return {
    kind: "wall",
    all: padded(first, last, 1),
    cuts: [],
    ofWall: (at) => at,
    toWall: (x) => x,
    ticks: (view, most) => clockTicks(view, most),
  };
}

/** When something ran: stretches that touch are one. */
function stretchesOf(sessions: readonly Session[]): [number, number][] {
  const sorted = sessions
    .filter((s) => s.started != null && s.started > 0)
    .map((s): [number, number] => [s.started as number, Math.max(s.ended ?? 0, s.started as number)])
    .sort((a, b) => a[0] - b[0]);
  const merged: [number, number][] = [];
  for (const [start, end] of sorted) {
    const before = merged.at(-1);
    if (before && start <= before[1]) before[1] = Math.max(before[1], end);
    else merged.push([start, end]);
  }
  return merged;
}

function relativeAxis(sessions: readonly Session[]): Axis {
  const stretches = stretchesOf(sessions);
  const running = stretches.reduce((sum, [start, end]) => sum + end - start, 0);
  const most = Math.max(running * GAP_SHARE, 1e-3);
  const walls: number[] = [];
  const xs: number[] = [];
  const cuts: Cut[] = [];
  let x = 0;
  for (const [start, end] of stretches) {
    const before = walls.at(-1);
    if (before !== undefined) {
      const gap = start - before;
      const shown = Math.min(gap, most);
      if (shown < gap) cuts.push({ lo: x, hi: x + shown, secs: gap });
      x += shown;
    }
    walls.push(start);
    xs.push(x);
    if (end > start) {
      x += end - start;
      walls.push(end);
      xs.push(x);
    }
  }
  const first = walls[0] ?? 0;
  const last = walls.at(-1) ?? 0;
  return {
    kind: "relative",
    all: padded(0, x, 1),
    cuts,
    ofWall: (at) => (at < first ? at - first : at > last ? x + at - last : interpolate(walls, xs, at)),
    toWall: (to) => (to < 0 ? first + to : to > x ? last + to - x : interpolate(xs, walls, to)),
    ticks: (view, n) => durationTicks(view, n),
  };
}

function stepAxis(sessions: readonly Session[], ways: readonly Way[]): Axis {
  const known = sessions.flatMap((s) => [s.first_step, s.last_step]).filter((s): s is number => s != null);
  const lo = known.reduce((a, b) => Math.min(a, b), Infinity);
  const hi = known.reduce((a, b) => Math.max(a, b), -Infinity);
  const starts = ways.map((way) => way.walls[0] ?? Infinity);
  const order = starts.map((_, i) => i).sort((a, b) => (starts[a] as number) - (starts[b] as number));
  const sorted = order.map((i) => starts[i] as number);
  const sessionAt = (at: number): number => order[Math.max(0, lowerBound(sorted, at + 1e-9) - 1)] ?? 0;
  return {
    kind: "step",
    all: known.length ? padded(lo, hi, 10) : { lo: 0, hi: 1 },
    cuts: [],
    ofWall: (at, session) => {
      const way = ways[session ?? sessionAt(at)];
      return way ? stepAt(way, at) : NaN;
    },
    toWall: () => null,
    ticks: (view, most) => stepTicks(view, most),
  };
}
