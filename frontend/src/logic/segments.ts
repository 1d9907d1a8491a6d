/** A tag's raw points as lines: one per segment, what was abandoned apart. */
import type { Columns, ScalarHeader } from "../types/api";
import { column } from "./columns";
import { lowerBound } from "./search";

export interface Line {
  segment: number;
  /** Done again later: by another session, or by the same one after a recovery. */
  abandoned: boolean;
  xs: Float64Array;
  /** As written. */
  raw: Float64Array;
  /** Smoothed by the backend, over all points; the same array where there is no smoothing. */
  shown: Float64Array;
  step: Float64Array;
  wall: Float64Array;
}

/** Where a point is on the axis, from its moment, step and segment, and its place in the columns. */
export type Place = (wall: number, step: number, segment: number, i: number) => number;

export function linesOf(scalars: Columns<ScalarHeader>, place: Place): Line[] {
  const wall = column(scalars, "wall");
  const step = column(scalars, "step");
  const value = column(scalars, "value");
  const segment = column(scalars, "segment");
  const smoothed = scalars.columns.smoothed;
  const points = bySegment(segment);
  const lines: Line[] = [];
  for (const [index, own] of points) {
    const limit = scalars.header.segments[index]?.abandoned_after_step ?? Infinity;
    let cut = own.findIndex((i) => (step[i] as number) > limit);
    if (cut < 0) cut = own.length;
    const take = (from: number, to: number, abandoned: boolean): void => {
      if (to <= from) return;
      const part = own.slice(from, to);
      const raw = Float64Array.from(part, (i) => value[i] as number);
      lines.push({
        segment: index,
        abandoned,
        xs: Float64Array.from(part, (i) => place(wall[i] as number, step[i] as number, index, i)),
        raw,
        shown: smoothed ? Float64Array.from(part, (i) => smoothed[i] as number) : raw,
        step: Float64Array.from(part, (i) => step[i] as number),
        wall: Float64Array.from(part, (i) => wall[i] as number),
      });
    };
    take(0, cut, false);
    // The joint belongs to both, so that the dimmed line begins where the kept one leaves it.
    if (cut < own.length) take(Math.max(0, cut - 1), own.length, true);
  }
  return lines;
}

function bySegment(segment: Float64Array): [number, number[]][] {
  const found = new Map<number, number[]>();
  for (let i = 0; i < segment.length; i++) {
    const index = segment[i] as number;
    const list = found.get(index);
    if (list) list.push(i);
    else found.set(index, [i]);
  }
  return [...found].sort((a, b) => a[0] - b[0]);
}

/** The smallest and largest finite value that is drawn between `lo` and `hi`; null where there is none. */
export function extent(lines: readonly Line[], lo: number, hi: number, positive: boolean): [number, number] | null {
  let least = Infinity;
  let most = -Infinity;
  for (const line of lines) {
    for (let i = lowerBound(line.xs, lo); i < line.xs.length; i++) {
      const x = line.xs[i] as number;
      const y = line.shown[i] as number;
      if (x > hi) break;
      if (!(x >= lo) || !Number.isFinite(y) || (positive && y <= 0)) continue;
      if (y < least) least = y;
      if (y > most) most = y;
    }
  }
  return least <= most ? [least, most] : null;
}
