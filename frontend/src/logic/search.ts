/** Places in sorted columns. */

/** The first index whose value is not below `x`. */
export function lowerBound(sorted: ArrayLike<number>, x: number): number {
  let lo = 0;
  let hi = sorted.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if ((sorted[mid] as number) < x) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/** The index whose value is nearest to `x`; -1 in an empty column. */
export function nearest(sorted: ArrayLike<number>, x: number): number {
  const after = lowerBound(sorted, x);
  if (after === 0) return sorted.length ? 0 : -1;
  if (after === sorted.length) return after - 1;
  return x - (sorted[after - 1] as number) <= (sorted[after] as number) - x ? after - 1 : after;
}

/** `y` at `x` on the line through points with rising `xs`; held at its ends. */
export function interpolate(xs: ArrayLike<number>, ys: ArrayLike<number>, x: number): number {
  const n = xs.length;
  if (n === 0) return NaN;
  const after = lowerBound(xs, x);
  if (after === 0) return ys[0] as number;
  if (after === n) return ys[n - 1] as number;
  const x0 = xs[after - 1] as number;
  const y0 = ys[after - 1] as number;
  const share = (x - x0) / ((xs[after] as number) - x0);
  return y0 + ((ys[after] as number) - y0) * share;
}
