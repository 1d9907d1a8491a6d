/** A tag's lines, drawn: what was kept strong, what was abandoned dimmed and dashed. */

import { lowerBound } from "../logic/search";
import type { Line } from "../logic/segments";
import type { View } from "../logic/view";
import { toPixel } from "../logic/view";
import type { YScale } from "../logic/y_scale";
import { yPixel } from "../logic/y_scale";
import type { Theme } from "./theme";

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** With fewer points than this in sight each gets a dot. */
const DOTS = 60;
/** Lines that go up and down by more pixels than this are drawn in columns: beyond it a stroke costs several frames. */
const MOST_TRAVEL_PX = 15_000;

export function drawLines(
  c: CanvasRenderingContext2D,
  lines: readonly Line[],
  view: View,
  y: YScale,
  box: Box,
  clip: Pick<Box, "left" | "width">,
  theme: Theme,
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
      const smoothed = line.shown !== line.raw;
      c.strokeStyle = line.abandoned ? theme.wasted : theme.line;
      c.fillStyle = c.strokeStyle;
      c.setLineDash(line.abandoned ? [5, 3] : []);
      if (smoothed) {
        c.globalAlpha = line.abandoned ? 0.12 : 0.25;
        c.lineWidth = 1;
        trace(c, line.xs, line.raw, view, y, box, false);
      }
      c.globalAlpha = line.abandoned ? 0.6 : 1;
      c.lineWidth = line.abandoned ? 1.25 : 1.75;
      trace(c, line.xs, line.shown, view, y, box, dots);
      c.setLineDash([]);
      markOdd(c, line, view, box, theme);
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
  const from = Math.max(0, lowerBound(xs, view.lo) - 1);
  const to = Math.min(xs.length, lowerBound(xs, view.hi) + 1);
  if (isDense(ys, from, to, y, box)) {
    fillColumns(c, xs, ys, from, to, view, y, box);
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

function isDense(ys: Float64Array, from: number, to: number, y: YScale, box: Box): boolean {
  let travel = 0;
  let last = NaN;
  for (let i = from; i < to; i++) {
    const py = yPixel(ys[i] as number, y, box.top, box.height);
    const by = Math.abs(py - last);
    // A point costs something even where the line stands still.
    travel += 1 + (Number.isFinite(by) ? by : 0);
    if (travel > MOST_TRAVEL_PX) return true;
    last = py;
  }
  return false;
}

/** Where many points share a pixel: a bar from the lowest to the highest, which is drawn in a tenth of a line's time. */
function fillColumns(
  c: CanvasRenderingContext2D,
  xs: Float64Array,
  ys: Float64Array,
  from: number,
  to: number,
  view: View,
  y: YScale,
  box: Box,
): void {
  const thick = c.lineWidth;
  let at = NaN;
  let high = 0;
  let low = 0;
  let last = 0;
  const flush = (): void => {
    if (!Number.isNaN(at)) c.fillRect(at, high - thick / 2, 1, low - high + thick);
  };
  for (let i = from; i < to; i++) {
    const value = ys[i] as number;
    if (!Number.isFinite(value) || (y.log && value <= 0)) {
      flush();
      at = NaN;
      continue;
    }
    const px = Math.floor(toPixel(xs[i] as number, view, box.left, box.width));
    const py = yPixel(value, y, box.top, box.height);
    if (px !== at) {
      const gap = px - at;
      if (gap > 0) {
        // Each column reaches to the line's height at its edge.
        const edge = last + (py - last) * (0.5 / gap);
        high = Math.min(high, edge);
        low = Math.max(low, edge);
      }
      flush();
      // Columns that hold no point are crossed on a straight line.
      for (let k = 1; k < gap; k++) {
        const a = last + ((py - last) * (k - 0.5)) / gap;
        const b = last + ((py - last) * (k + 0.5)) / gap;
        c.fillRect(at + k, Math.min(a, b) - thick / 2, 1, Math.abs(b - a) + thick);
      }
      const joined = !(gap > 0) ? py : last + ((py - last) * (gap - 0.5)) / gap;
      at = px;
      high = Math.min(py, joined);
      low = Math.max(py, joined);
    } else if (py < high) high = py;
    else if (py > low) low = py;
    last = py;
  }
  flush();
}

/** Values that are no numbers get a sign at the bottom, where they were written. */
function markOdd(c: CanvasRenderingContext2D, line: Line, view: View, box: Box, theme: Theme): void {
  c.fillStyle = theme.tone.warn ?? theme.text;
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
