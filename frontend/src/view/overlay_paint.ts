/** Curves of several runs in one box: as strokes where they are few points, as pixels where they are many. */
import { mixed, rgbOf } from "../logic/colours";
import type { Shown } from "../logic/layers";
import { Raster } from "../logic/raster";
import { interpolate } from "../logic/search";
import type { Line } from "../logic/segments";
import type { View } from "../logic/view";
import type { YScale } from "../logic/y_scale";
import { yPixel } from "../logic/y_scale";
import type { Box } from "./chart_lines";
import { clipOf, drawPieces, inSight, markOdd, placingOf, travelOf } from "./chart_lines";
import type { Theme } from "./theme";

export interface OverlayCurve {
  run: string;
  colour: string;
  shown: Shown[];
}

/** How a chart is looked at. */
export interface Look {
  view: View;
  log: boolean;
  /** The run that is pointed at: the others are faint. */
  highlighted: string | null;
  baseline: string | null;
}

/** Lines that together go up and down by more pixels than this are drawn as pixels: strokes would cost several frames. */
const MOST_STROKES_PX = 8_000;
const FAINT = 0.78;
const BEHIND = 0.65;

interface Styled {
  curve: OverlayCurve;
  colour: string;
  width: number;
  withRaw: boolean;
}

/** In the order of drawing: what is looked at comes last. */
function styled(curves: readonly OverlayCurve[], look: Look, theme: Theme): Styled[] {
  const { highlighted, baseline } = look;
  const rank = ({ run }: OverlayCurve): number => (run === highlighted ? 2 : run === baseline ? 1 : 0);
  return [...curves]
    .sort((a, b) => rank(a) - rank(b))
    .map((curve) => {
      const isFaint = highlighted !== null && rank(curve) === 0;
      return {
        curve,
        colour: isFaint ? mixed(curve.colour, theme.background, FAINT) : curve.colour,
        width: curve.run === baseline ? 3 : curve.run === highlighted ? 2.25 : 1.5,
        withRaw: curve.run === highlighted,
      };
    });
}

/** Whether there are more lines in sight than can be drawn as strokes in a frame. */
export function isCrowded(curves: readonly OverlayCurve[], view: View, scale: YScale, box: Box): boolean {
  let left = MOST_STROKES_PX;
  for (const { shown } of curves) {
    for (const { lines } of shown) {
      for (const { xs, shown: ys } of lines) {
        const { from, to } = inSight(xs, view);
        left -= travelOf(ys, from, to, scale, box, left);
        if (left < 0) return true;
      }
    }
  }
  return false;
}

export function strokeCurves(
  c: CanvasRenderingContext2D,
  curves: readonly OverlayCurve[],
  look: Look,
  scale: YScale,
  box: Box,
  theme: Theme,
): void {
  for (const { curve, colour, width, withRaw } of styled(curves, look, theme)) {
    const style = { kept: colour, abandoned: colour, odd: colour, width, withRaw };
    drawPieces(c, curve.shown, look.view, scale, box, style);
  }
}

/** The pixels of a chart, kept from frame to frame. */
export class CurvePixels {
  #raster = new Raster(1, 1);
  #image = new ImageData(1, 1);

  /** Draw on a canvas that has `ratio` dots for a CSS pixel, in place of what is in the box. */
  paint(
    c: CanvasRenderingContext2D,
    ratio: number,
    curves: readonly OverlayCurve[],
    look: Look,
    scale: YScale,
    box: Box,
    theme: Theme,
  ): void {
    const width = Math.round(box.width * ratio);
    const height = Math.round(box.height * ratio);
    if (this.#raster.width !== width || this.#raster.height !== height) {
      this.#raster = new Raster(width, height);
      this.#image = new ImageData(this.#raster.bytes, width, height);
    } else this.#raster.clear();
    const raster = this.#raster;
    const { view } = look;
    const at = placingOf(view, scale, width, height);
    const order = styled(curves, look, theme);
    for (const { curve, colour, width: thick, withRaw } of order) {
      for (const piece of curve.shown) {
        const part = clipOf(piece, view, box);
        const left = Math.round((part.left - box.left) * ratio);
        const clip = { left, right: left + Math.round(part.width * ratio) };
        const draw = (line: Line, ys: Float64Array, tint: string, dots: number): void =>
          raster.line(line.xs, ys, inSight(line.xs, view), at, clip, rgbOf(tint), dots * ratio, line.abandoned);
        for (const abandoned of [true, false]) {
          for (const line of piece.lines) {
            if (line.abandoned !== abandoned) continue;
            if (withRaw && line.shown !== line.raw) draw(line, line.raw, mixed(colour, theme.background, BEHIND), 1);
            draw(
              line,
              line.shown,
              abandoned ? mixed(colour, theme.background, 0.35) : colour,
              abandoned ? 1.25 : thick,
            );
          }
        }
      }
    }
    c.putImageData(this.#image, Math.round(box.left * ratio), Math.round(box.top * ratio));
    for (const { curve, colour } of order)
      for (const { lines } of curve.shown) for (const line of lines) markOdd(c, line, view, box, colour);
  }
}

/** Lines farther from the pointer are not meant. */
const NEAR_PX = 14;

/** The run whose line is nearest to a place; null where none is near. */
export function runAt(curves: readonly OverlayCurve[], scale: YScale, box: Box, x: number, py: number): string | null {
  let best: string | null = null;
  let least = NEAR_PX;
  for (const { run, shown } of curves) {
    for (const { lines, lo, hi } of shown) {
      if (!(x >= lo && x <= hi)) continue;
      for (const { xs, shown: ys } of lines) {
        if (!(x >= (xs[0] as number) && x <= (xs.at(-1) as number))) continue;
        const away = Math.abs(yPixel(interpolate(xs, ys, x), scale, box.top, box.height) - py);
        if (away >= least) continue;
        least = away;
        best = run;
      }
    }
  }
  return best;
}
