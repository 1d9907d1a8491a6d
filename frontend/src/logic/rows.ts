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

/** The row that a key goes to from this one, in a box of this height; null of a key that goes to none. */
export function rowAfter(key: string, row: number, tops: Float64Array, height: number): number | null {
  const last = tops.length - 2;
  const from = tops[row] ?? 0;
  const page = height * 0.8;
  const rows: Record<string, number> = {
    ArrowDown: row + 1,
    ArrowUp: row - 1,
    PageDown: Math.max(row + 1, rowAt(tops, from + page)),
    PageUp: Math.min(row - 1, rowAt(tops, from - page)),
    Home: 0,
    End: last,
  };
  const to = rows[key];
  return to === undefined ? null : Math.max(0, Math.min(last, to));
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
