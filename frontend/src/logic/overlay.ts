/** Curves of several runs over one axis. */
import type { Columns, ScalarHeader } from "../types/api";
import type { Axis, AxisKind } from "./axis";
import { padded } from "./axis";
import type { Shown } from "./layers";
import { nearestPoint } from "./layers";
import type { Line, Place } from "./segments";
import { clockTicks, durationTicks, stepTicks } from "./ticks";
import type { View } from "./view";

/** What the backend calls the axes. */
export const BY = { wall: "wall", relative: "running", step: "step" } as const;

const TICKS = { wall: clockTicks, relative: durationTicks, step: stepTicks } as const;

/** An axis on which a place is what it is in the columns: in running time restarts are cut out, so nothing is clipped. */
export function overlayAxis(kind: AxisKind, all: View | null): Axis {
  return {
    kind,
    all: all ? padded(all.lo, all.hi, kind === "step" ? 10 : 1) : { lo: 0, hi: 1 },
    cuts: [],
    ofWall: (at) => at,
    toWall: (x) => x,
    ticks: (view, most) => TICKS[kind](view, most),
  };
}

/** Where points are on an axis; null without running times, NaN where a moment is not known. */
export function placing(kind: AxisKind, scalars: Columns<ScalarHeader>): Place | null {
  if (kind === "step") return (_, step) => step;
  if (kind === "wall") return (wall) => (wall > 0 ? wall : NaN);
  const { running } = scalars.columns;
  return running ? (_wall, _step, _segment, i) => running[i] as number : null;
}

/** From the first point of lines to the last; null without one. */
export function spanOf(lines: readonly Line[], before: View | null): View | null {
  let { lo, hi } = before ?? { lo: Infinity, hi: -Infinity };
  for (const { xs } of lines) {
    const [first, last] = [xs[0], xs.at(-1)];
    if (first !== undefined && first < lo) lo = first;
    if (last !== undefined && last > hi) hi = last;
  }
  return lo <= hi ? { lo, hi } : null;
}

/** What a run's curve says at a place. */
export interface Reading {
  raw: number;
  /** Null without smoothing. */
  smoothed: number | null;
  step: number;
  wall: number;
  recomputed: boolean;
}

function readingOf(line: Line, i: number): Reading {
  return {
    raw: line.raw[i] as number,
    smoothed: line.shown === line.raw ? null : (line.shown[i] as number),
    step: line.step[i] as number,
    wall: line.wall[i] as number,
    recomputed: line.abandoned,
  };
}

/** The point nearest to a place; null beyond the curve's ends, apart from some slack. */
export function readingAt(shown: readonly Shown[], x: number, slack: number): Reading | null {
  const span = shown.reduce<View | null>((found, { lines }) => spanOf(lines, found), null);
  if (!span || x < span.lo - slack || x > span.hi + slack) return null;
  const found = nearestPoint(shown, x);
  return found && readingOf(found.line, found.i);
}

/** The last point that was kept. */
export function lastReading(shown: readonly Shown[]): Reading | null {
  const lines = shown.flatMap(({ lines }) => lines).filter((line) => !line.abandoned && line.xs.length);
  let best: Line | null = null;
  for (const line of lines) if (!best || (line.step.at(-1) as number) >= (best.step.at(-1) as number)) best = line;
  return best && readingOf(best, best.xs.length - 1);
}

/** Names without the directories that all have in common. */
export function shortNames(names: readonly string[]): string[] {
  const first = names[0] ?? "";
  let common = first.lastIndexOf("/") + 1;
  while (common > 0 && !names.every((name) => name.startsWith(first.slice(0, common))))
    common = first.lastIndexOf("/", common - 2) + 1;
  return names.map((name) => name.slice(common));
}

/** What is drawn of a reading. */
export const drawn = (reading: Reading): number => reading.smoothed ?? reading.raw;

/** How far a reading is from the baseline's; null where one of them is not known. */
export function difference(reading: Reading | null, baseline: Reading | null): number | null {
  return reading && baseline ? drawn(reading) - drawn(baseline) : null;
}
