/** Bars that overlap go below each other. */

/** The row of each bar, in their order: the first in which it fits. At most `most` rows; the rest share the last. */
export function packRows(bars: readonly (readonly [number, number])[], most: number): { rows: number[]; count: number } {
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
