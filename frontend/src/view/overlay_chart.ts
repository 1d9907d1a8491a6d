/** One tag of several runs, overlaid. */
import type { Axis } from "../logic/axis";
import { plural } from "../logic/format";
import { fromPixel } from "../logic/view";
import { makeYScale } from "../logic/y_scale";
import type { Figure } from "./chart_export";
import { ChartFrame, paintGrid } from "./chart_frame";
import type { Box } from "./chart_lines";
import type { Look, OverlayCurve } from "./overlay_paint";
import { CurvePixels, isCrowded, runAt, strokeCurves } from "./overlay_paint";
import type { Theme } from "./theme";

const HEIGHT = 190;
const PAD = 6;

export class OverlayChart extends ChartFrame {
  readonly #pixels = new CurvePixels();
  /** Whether it is in sight: what is not is not drawn. */
  isSeen = false;
  curves: readonly OverlayCurve[] = [];
  #look: Look = { view: { lo: 0, hi: 1 }, log: false, highlighted: null, baseline: null };
  #box: Box = { left: 0, top: PAD, width: 1, height: HEIGHT - 2 * PAD };
  #thinned = false;
  #scale = makeYScale(null, false, HEIGHT);

  /** `waiting`: how many runs' curves are still to come; `failed`: why some cannot be had. */
  setCurves(curves: readonly OverlayCurve[], thinned: boolean, waiting: number, failed: string | null): void {
    this.curves = curves;
    this.#thinned = thinned;
    const again = curves.some(({ shown }) => shown.some(({ lines }) => lines.some((line) => line.abandoned)));
    const words = [
      plural(curves.length, "run"),
      waiting && `${plural(waiting, "run")} being read…`,
      thinned && "extremes per pixel",
      again && "dashed: recomputed",
      failed,
    ];
    this.say(words.filter(Boolean).join(", "));
  }

  draw(axis: Axis, look: Look, left: number, width: number, theme: Theme): void {
    this.#look = look;
    this.#box = { ...this.#box, left, width };
    const box = this.#box,
      { curves } = this;
    const pieces = curves.flatMap(({ shown }) => shown);
    this.#scale = this.scaleOf(pieces, look.view, look.log, box.height);
    const c = this.canvas.begin(left + width + 1, HEIGHT);
    const crowded = isCrowded(curves, look.view, this.#scale, box);
    // Pixels replace what is there: the grid is then painted behind them.
    if (crowded) {
      this.#pixels.paint(c, this.canvas.ratio, curves, look, this.#scale, box, theme);
      c.globalCompositeOperation = "destination-over";
    }
    paintGrid(c, axis, look.view, this.#scale, box, theme);
    c.globalCompositeOperation = "source-over";
    if (!crowded) strokeCurves(c, curves, look, this.#scale, box, theme);
    const paint: Figure["paint"] = (to, at) => {
      paintGrid(to, axis, look.view, this.#scale, at, theme);
      strokeCurves(to, curves, look, this.#scale, at, theme);
    };
    const named = curves.map((curve) => ({ ...curve, thinned: this.#thinned }));
    this.figure = { name: "compare", tag: this.tag, axis, view: look.view, box, theme, paint, curves: named };
  }

  /** The run whose line is at a place of the chart. */
  runAt(px: number, py: number): string | null {
    const box = this.#box,
      look = this.#look;
    return runAt(this.curves, this.#scale, box, fromPixel(px, look.view, box.left, box.width), py);
  }
}
