/** A curve as far as it is known: all of it, which may be thinned, and a finer stretch. */
import type { Columns, ScalarHeader } from "../types/api";
import { nearest } from "./search";
import type { Line } from "./segments";

/** What the backend answered, and its lines on the axis. */
export interface Layer {
  scalars: Columns<ScalarHeader>;
  lines: Line[];
}

/** Lines, and the part of the axis in which they are drawn. */
export interface Shown {
  lines: Line[];
  lo: number;
  hi: number;
}

/** The finer stretch where it has points, and the whole around it. */
export function shownOf(whole: Layer | null, fine: Layer | null): Shown[] {
  const everywhere = { lo: -Infinity, hi: Infinity };
  if (!fine || !whole) return [whole, fine].flatMap((layer) => (layer ? [{ ...layer, ...everywhere }] : []));
  const ends = fine.lines.map(({ xs }) => [xs[0] ?? Infinity, xs.at(-1) ?? -Infinity] as const);
  const lo = Math.min(...ends.map(([first]) => first));
  const hi = Math.max(...ends.map(([, last]) => last));
  if (!(lo < hi)) return [{ ...whole, ...everywhere }];
  return [
    { ...whole, lo: -Infinity, hi: lo },
    { ...fine, lo, hi },
    { ...whole, lo: hi, hi: Infinity },
  ];
}

/** A point of a line. */
export interface Found {
  line: Line;
  i: number;
}

/** The point that is nearest to a place of the axis, of two at the same distance one that was kept; null without points. */
export function nearestPoint(shown: readonly Shown[], x: number): Found | null {
  let best: (Found & { away: number }) | null = null;
  for (const { lines, lo, hi } of shown) {
    if (!(x >= lo && x <= hi)) continue;
    for (const line of lines) {
      const i = nearest(line.xs, x);
      if (i < 0) continue;
      const away = Math.abs((line.xs[i] as number) - x);
      if (!best || away < best.away || (away === best.away && best.line.abandoned)) best = { line, i, away };
    }
  }
  return best;
}
