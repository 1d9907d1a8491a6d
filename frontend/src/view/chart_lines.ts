/** A curve's lines, drawn: what was kept strong, what was abandoned dimmed and dashed. */

import type { Shown } from "../logic/layers";
import type { Scaling } from "../logic/raster";
import { cover } from "../logic/raster";
import { lowerBound } from "../logic/search";
import type { Line } from "../logic/segments";
import type { View } from "../logic/view";
import { toPixel } from "../logic/view";
import type { YScale } from "../logic/y_scale";
import { yPixel } from "../logic/y_scale";

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface LineStyle {
  /** Colours: of what was kept, of what was abandoned, of the signs for values that are no numbers. */
  kept: string;
  abandoned: string;
  odd: string;
  /** Of lines that were kept, in pixels. */
  width: number;
  /** Whether raw values are seen behind smoothed ones. */
  withRaw: boolean;
}

/** With fewer points than this in sight each gets a dot. */
const DOTS = 60;
/** Lines that go up and down by more pixels than this are drawn in columns: beyond it a stroke costs several frames. */
const MOST_TRAVEL_PX = 15_000;

export function drawPieces(
  c: CanvasRenderingContext2D,
  pieces: readonly Shown[],
  view: View,
  y: YScale,
  box: Box,
  style: LineStyle,
): void {
  for (const piece of pieces) {
    const clip = clipOf(piece, view, box);
    if (clip.width > 0) drawLines(c, piece.lines, view, y, box, clip, style);
  }
}

/** The columns of a piece, in pixels from the left of the canvas. */
export function clipOf({ lo, hi }: Shown, view: View, { left, width }: Box): { left: number; width: number } {
  const from = Math.max(left, Math.round(toPixel(lo, view, left, width)));
  const to = Math.min(left + width, Math.round(toPixel(hi, view, left, width)));
  return { left: from, width: Math.max(0, to - from) };
}

function drawLines(
  c: CanvasRenderingContext2D,
  lines: readonly Line[],
  view: View,
  y: YScale,
  box: Box,
  clip: Pick<Box, "left" | "width">,
  style: LineStyle,
): void {
  c.save();
  c.beginPath();
  c.rect(clip.left, box.top, clip.width, box.height);
  c.clip();
  const seen = lines.reduce((sum, line) => sum + lowerBound(line.xs, view.hi) - lowerBound(line.xs, view.lo), 0);
  const dots = seen <= DOTS;
  for (const pass of [true, false]) {
    for (const line of lines) {
      if (line.abandoned !== pass) continue;
      c.strokeStyle = line.abandoned ? style.abandoned : style.kept;
      c.fillStyle = c.strokeStyle;
      c.setLineDash(line.abandoned ? [5, 3] : []);
      if (line.shown !== line.raw && style.withRaw) {
        c.globalAlpha = line.abandoned ? 0.12 : 0.25;
        c.lineWidth = 1;
        trace(c, line.xs, line.raw, view, y, box, false);
      }
      c.globalAlpha = line.abandoned ? 0.6 : 1;
      c.lineWidth = line.abandoned ? Math.min(style.width, 1.25) : style.width;
      trace(c, line.xs, line.shown, view, y, box, dots);
      c.setLineDash([]);
      markOdd(c, line, view, box, style.odd);
    }
  }
  c.restore();
}

function trace(
  c: CanvasRenderingContext2D,
  xs: Float64Array,
  ys: Float64Array,
  view: View,
  y: YScale,
  box: Box,
  dots: boolean,
): void {
  const range = inSight(xs, view);
  const { from, to } = range;
  if (travelOf(ys, from, to, y, box, MOST_TRAVEL_PX) > MOST_TRAVEL_PX) {
    fillColumns(c, xs, ys, range, view, y, box);
    return;
  }
  c.lineJoin = "bevel";
  c.beginPath();
  let open = false;
  let lone: [number, number] | null = null;
  const singles: [number, number][] = [];
  for (let i = from; i < to; i++) {
    const value = ys[i] as number;
    if (!Number.isFinite(value) || (y.log && value <= 0)) {
      if (lone) singles.push(lone);
      lone = null;
      open = false;
      continue;
    }
    const px = toPixel(xs[i] as number, view, box.left, box.width);
    const py = yPixel(value, y, box.top, box.height);
    if (open) {
      c.lineTo(px, py);
      lone = null;
    } else {
      c.moveTo(px, py);
      lone = [px, py];
    }
    open = true;
    if (dots) singles.push([px, py]);
  }
  if (lone) singles.push(lone);
  c.stroke();
  for (const [px, py] of singles) {
    c.beginPath();
    c.arc(px, py, 2.2, 0, 7);
    c.fill();
  }
}

/** The points that are seen, and one more at either side, to which lines lead. */
export function inSight(xs: Float64Array, view: View): { from: number; to: number } {
  return { from: Math.max(0, lowerBound(xs, view.lo) - 1), to: Math.min(xs.length, lowerBound(xs, view.hi) + 1) };
}

/** By how many pixels a line goes up and down, a little more for each point; counted to somewhat above `most`. */
export function travelOf(ys: Float64Array, from: number, to: number, y: YScale, box: Box, most: number): number {
  let travel = 0;
  let last = NaN;
  for (let i = from; i < to && travel <= most; i++) {
    const py = yPixel(ys[i] as number, y, box.top, box.height);
    const by = Math.abs(py - last);
    // A point costs something even where the line stands still.
    travel += 1 + (Number.isFinite(by) ? by : 0);
    last = py;
  }
  return travel;
}

/** Where points lie in a box of this size. */
export function placingOf(view: View, scale: YScale, width: number, height: number): Scaling {
  const { log } = scale;
  const exponent = (y: number): number => (log ? Math.log10(y) : y);
  const perX = width / (view.hi - view.lo || 1);
  const perY = -height / (exponent(scale.hi) - exponent(scale.lo));
  return { left: -view.lo * perX, perX, top: height - exponent(scale.lo) * perY, perY, log };
}

/** Where many points share a pixel: a bar from the lowest to the highest, which is drawn in a tenth of a line's time. */
function fillColumns(
  c: CanvasRenderingContext2D,
  xs: Float64Array,
  ys: Float64Array,
  range: { from: number; to: number },
  view: View,
  y: YScale,
  { left, top, width, height }: Box,
): void {
  const thick = c.lineWidth;
  const highest = new Float64Array(width + 2).fill(Infinity);
  const lowest = new Float64Array(width + 2).fill(-Infinity);
  cover(highest, lowest, xs, ys, range, placingOf(view, y, width, height), 0, width);
  for (let column = 0; column < width; column++) {
    const high = highest[column + 1] as number;
    const low = lowest[column + 1] as number;
    if (high <= low) c.fillRect(left + column, top + high - thick / 2, 1, low - high + thick);
  }
}

/** Values that are no numbers get a sign at the bottom, where they were written. */
export function markOdd(c: CanvasRenderingContext2D, line: Line, view: View, box: Box, colour: string): void {
  c.fillStyle = colour;
  let last = -Infinity;
  for (let i = 0; i < line.raw.length; i++) {
    if (Number.isFinite(line.raw[i])) continue;
    const x = toPixel(line.xs[i] as number, view, box.left, box.width);
    if (!(x >= box.left && x <= box.left + box.width) || x - last < 6) continue;
    last = x;
    const bottom = box.top + box.height;
    c.beginPath();
    c.moveTo(x - 4, bottom);
    c.lineTo(x + 4, bottom);
    c.lineTo(x, bottom - 7);
    c.fill();
  }
}
