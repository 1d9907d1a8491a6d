/** What part of an axis is asked for: somewhat more than is looked at. */
import type { Axis } from "./axis";
import type { View } from "./view";

/** Beyond both edges, in widths of the window, so that panning finds something there. */
const MARGIN = 0.5;

export interface Stretch {
  by: "wall" | "step" | "running";
  /** Moments, seconds, or steps; null: from the first, to the last. */
  from: number | null;
  to: number | null;
}

/** `view` null: all of it. */
export function stretchOf(axis: Axis, view: View | null): Stretch {
  const by = axis.kind === "step" ? "step" : "wall";
  if (!view) return { by, from: null, to: null };
  const room = (view.hi - view.lo) * MARGIN;
  const place = (x: number): number => axis.toWall(x) ?? x;
  return { by, from: place(view.lo - room), to: place(view.hi + room) };
}

/** In how many columns a stretch is drawn, of which `width` are in sight. */
export const columnsOf = ({ from }: Stretch, width: number): number =>
  Math.min(8192, Math.max(16, Math.round(width * (from === null ? 1 : 1 + 2 * MARGIN))));
