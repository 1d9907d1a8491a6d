/** One tag of several runs, overlaid. */
import type { Axis } from "../logic/axis";
import { plural } from "../logic/format";
import { fromPixel } from "../logic/view";
import { makeYScale } from "../logic/y_scale";
import { Canvas } from "./canvas";
import type { Figure } from "./chart_export";
import { chartButtons } from "./chart_export";
import { paintGrid } from "./chart_frame";
import type { Box } from "./chart_lines";
import { h, setAttribute, setText } from "./element";
import type { Look, OverlayCurve } from "./overlay_paint";
import { CurvePixels, isCrowded, runAt, scaleOf, strokeCurves } from "./overlay_paint";
import type { Theme } from "./theme";

const HEIGHT = 190;
const PAD = 6;

export class OverlayChart {
  readonly #note = h("span", { class: "muted" }, "reading…");
  readonly area = h("div", { class: "chart-area overlay-area", role: "img" });
  readonly element: HTMLElement;
  readonly #canvas = new Canvas("chart-canvas");
  readonly #pixels = new CurvePixels();
  /** Whether it is in sight: what is not is not drawn. */
  isSeen = false;
  curves: readonly OverlayCurve[] = [];
  #look: Look = { view: { lo: 0, hi: 1 }, log: false, highlighted: null, baseline: null };
  #box: Box = { left: 0, top: PAD, width: 1, height: HEIGHT - 2 * PAD };
  /** As it was drawn last. */
  #figure: Figure | null = null;
  #thinned = false;
  #scale = makeYScale(null, false, HEIGHT);

  constructor(
    readonly tag: string,
    hide: () => void,
  ) {
    const close = h(
      "button",
      { class: "icon", title: "Hide this tag", "aria-label": `Hide ${tag}`, onclick: hide },
      "×",
    );
    this.element = h(
      "section",
      { class: "chart", "aria-label": `Scalar ${tag}` },
      h(
        "div",
        { class: "chart-head" },
        h("h3", { title: tag }, tag),
        this.#note,
        ...chartButtons(tag, () => this.#figure),
        close,
      ),
      this.area,
    );
    this.area.append(this.#canvas.element);
  }

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
    const said = words.filter(Boolean).join(", ");
    setText(this.#note, said);
    setAttribute(this.area, "aria-label", `${this.tag}: ${said}`);
  }

  draw(axis: Axis, look: Look, left: number, width: number, theme: Theme): void {
    this.#look = look;
    this.#box = { ...this.#box, left, width };
    const box = this.#box,
      { curves } = this;
    this.#scale = scaleOf(curves, look, box.height);
    const c = this.#canvas.begin(left + width + 1, HEIGHT);
    const crowded = isCrowded(curves, look.view, this.#scale, box);
    // Pixels replace what is there: the grid is then painted behind them.
    if (crowded) {
      this.#pixels.paint(c, this.#canvas.ratio, curves, look, this.#scale, box, theme);
      c.globalCompositeOperation = "destination-over";
    }
    paintGrid(c, axis, look.view, this.#scale, box, theme);
    c.globalCompositeOperation = "source-over";
    if (!crowded) strokeCurves(c, curves, look, this.#scale, box, theme, false);
    const paint: Figure["paint"] = (to, at, columns) => {
      paintGrid(to, axis, look.view, this.#scale, at, theme);
      strokeCurves(to, curves, look, this.#scale, at, theme, columns);
    };
    const named = curves.map((curve) => ({ ...curve, thinned: this.#thinned }));
    this.#figure = { name: "compare", tag: this.tag, axis, view: look.view, box, theme, paint, curves: named };
  }

  /** The run whose line is at a place of the chart. */
  runAt(px: number, py: number): string | null {
    const box = this.#box,
      look = this.#look;
    return runAt(this.curves, this.#scale, box, fromPixel(px, look.view, box.left, box.width), py);
  }
}
