/** Which rows of a long list are to be in the page. Rows differ in height: `tops` has where each begins, and the end. */
import { lowerBound } from "./search";

export interface Slice {
  first: number;
  /** One past the last. */
  end: number;
}

/** Where rows of these heights begin, and where the last one ends. */
export function topsOf(heights: readonly number[]): Float64Array {
  const tops = new Float64Array(heights.length + 1);
  heights.forEach((height, i) => {
    tops[i + 1] = (tops[i] as number) + height;
  });
  return tops;
}

/** The row at a place, or the nearest one; -1 where there are none. */
export function rowAt(tops: Float64Array, y: number): number {
  const first = lowerBound(tops, y);
  return Math.min(tops.length - 2, tops[first] === y ? first : Math.max(0, first - 1));
}

export function visibleRows(top: number, height: number, tops: Float64Array, spare = 6): Slice {
  const count = tops.length - 1;
  if (!count) return { first: 0, end: 0 };
  const first = Math.max(0, rowAt(tops, top) - spare);
  return { first, end: Math.min(count, rowAt(tops, top + height) + 1 + spare) };
}

/** Where to scroll so that a row is seen whole; null where it is. */
export function scrollToRow(row: number, top: number, height: number, tops: Float64Array): number | null {
  const [start, end] = [tops[row] as number, tops[row + 1] as number];
  if (start < top) return start;
  return end > top + height ? end - height : null;
}
