/** The stretch of the axis that is shown, and how zooming and panning change it. */

export interface View {
  lo: number;
  hi: number;
}

/** The smallest stretch that may be shown, as a share of all; below it numbers run out of digits. */
const FINEST = 1e-7;

export function clampView(view: View, all: View): View {
  const whole = all.hi - all.lo;
  const span = Math.min(whole, Math.max(view.hi - view.lo, whole * FINEST));
  const middle = (view.lo + view.hi) / 2;
  const lo = Math.min(Math.max(middle - span / 2, all.lo), all.hi - span);
  return { lo, hi: lo + span };
}

/** Zoom about `x`, which stays where it is: a factor below 1 shows less. */
export function zoomAt(view: View, all: View, x: number, factor: number): View {
  return clampView({ lo: x - (x - view.lo) * factor, hi: x + (view.hi - x) * factor }, all);
}

/** Move by a share of what is shown. */
export function pan(view: View, all: View, share: number): View {
  const by = (view.hi - view.lo) * share;
  return clampView({ lo: view.lo + by, hi: view.hi + by }, all);
}

export function isWhole(view: View, all: View): boolean {
  const slack = (all.hi - all.lo) * 1e-9;
  return view.lo <= all.lo + slack && view.hi >= all.hi - slack;
}

export const toPixel = (x: number, view: View, left: number, width: number): number =>
  left + ((x - view.lo) / (view.hi - view.lo || 1)) * width;

export const fromPixel = (px: number, view: View, left: number, width: number): number =>
  view.lo + ((px - left) / (width || 1)) * (view.hi - view.lo);
