/** One tag over the axis: grid, scale, restarts, and the lines of its segments. */

import { formatCount, formatMoment, formatValue, plural } from "../logic/format";
import type { Layer } from "../logic/layers";
import { nearestPoint } from "../logic/layers";
import type { Plot } from "../logic/plot";
import { extent } from "../logic/segments";
import type { View } from "../logic/view";
import { fromPixel, toPixel } from "../logic/view";
import type { YScale } from "../logic/y_scale";
import { makeYScale } from "../logic/y_scale";
import { Canvas } from "./canvas";
import type { Figure } from "./chart_export";
import { chartButtons } from "./chart_export";
import { paintGrid } from "./chart_frame";
import type { LineStyle } from "./chart_lines";
import { drawLines } from "./chart_lines";
import type { Curve } from "./curve_loader";
import { h, setAttribute, setText } from "./element";
import { paintBoundaries } from "./paint";
import type { Theme } from "./theme";

export interface ChartOptions {
  /** Done by the backend, before it thins. */
  smoothing: number;
  log: boolean;
}

const HEIGHT = 150;
const PAD_TOP = 6;
const PAD_BOTTOM = 6;

export class Chart {
  readonly #readout = h("span", { class: "readout" });
  readonly #note = h("span", { class: "muted" });
  readonly area = h("div", { class: "chart-area", role: "img" });
  readonly element: HTMLElement;
  readonly #canvas = new Canvas("chart-canvas");
  #plot: Plot | null = null;
  #curve: Curve | null = null;
  /** As it was drawn last. */
  #figure: Figure | null = null;
  #options: ChartOptions = { smoothing: 0, log: false };
  #view: View = { lo: 0, hi: 1 };
  #left = 0;
  #width = 0;
  #y: YScale = makeYScale(null, false, HEIGHT);

  constructor(
    readonly tag: string,
    remove: () => void,
  ) {
    const close = h(
      "button",
      { class: "icon", title: "Hide this tag", "aria-label": `Hide ${tag}`, onclick: remove },
      "×",
    );
    this.element = h(
      "section",
      { class: "chart", "aria-label": `Scalar ${tag}` },
      h(
        "div",
        { class: "chart-head" },
        h("h3", { title: tag }, tag),
        this.#readout,
        this.#note,
        ...chartButtons(tag, () => this.#figure),
        close,
      ),
      this.area,
    );
    this.area.append(this.#canvas.element);
    this.#say("reading…");
  }

  setCurve(curve: Curve, plot: Plot): void {
    this.#plot = plot;
    this.#curve = curve;
    const latest = curve.window.layer ?? curve.whole.layer;
    if (curve.problem !== null) this.#say(curve.problem);
    if (!latest || curve.problem !== null) return;
    const { points, thinned } = latest.scalars.header;
    const again = latest.lines.some((line) => line.abandoned) ? ", dashed: recomputed" : "";
    setText(this.#note, `${plural(points, "point")}${thinned ? ", extremes per pixel" : ""}${again}`);
    setAttribute(this.area, "aria-label", this.#describe(latest));
  }

  setOptions(options: ChartOptions): void {
    this.#options = options;
  }

  /** What there is to say instead of points, for the eye and for a reader of the page. */
  #say(words: string): void {
    setText(this.#note, words);
    setAttribute(this.area, "aria-label", `${this.tag}: ${words}`);
  }

  #describe({ scalars, lines }: Layer): string {
    const last = lines.filter((line) => !line.abandoned).at(-1);
    const value = last?.raw.at(-1);
    return `${this.tag}: ${plural(scalars.header.points, "point")}, last ${formatValue(value)} at step ${formatCount(last?.step.at(-1))}`;
  }

  draw(view: View, left: number, width: number, theme: Theme): void {
    const plot = this.#plot;
    if (!plot) return;
    this.#view = view;
    this.#left = left;
    this.#width = width;
    const box = { left, top: PAD_TOP, width, height: HEIGHT - PAD_TOP - PAD_BOTTOM };
    const seen = (this.#curve?.shown ?? []).filter(({ lo, hi }) => lo < view.hi && hi > view.lo);
    const ranges = seen.map(({ lines, lo, hi }) =>
      extent(lines, Math.max(lo, view.lo), Math.min(hi, view.hi), this.#options.log),
    );
    const range = ranges.reduce((a, b) => (a && b ? [Math.min(a[0], b[0]), Math.max(a[1], b[1])] : (a ?? b)), null);
    this.#y = makeYScale(range, this.#options.log, box.height);
    if (!range && this.#options.log && seen.some(({ lines }) => lines.length))
      setText(this.#note, "nothing above 0 here: no logarithm");
    const paint: Figure["paint"] = (c, at, columns) => {
      paintGrid(c, plot.axis, view, this.#y, at, theme);
      paintBoundaries({ c, theme, plot, view, left, width }, at.top, at.height, true);
      const style = lineStyle(theme, columns);
      for (const { lines, lo, hi } of seen) {
        const from = Math.max(left, Math.round(toPixel(lo, view, left, width)));
        const to = Math.min(left + width, Math.round(toPixel(hi, view, left, width)));
        drawLines(c, lines, view, this.#y, at, { left: from, width: to - from }, style);
      }
    };
    paint(this.#canvas.begin(left + width + 1, HEIGHT), box, true);
    const thinned = (this.#curve?.window.layer ?? this.#curve?.whole.layer)?.scalars.header.thinned ?? false;
    const { run } = plot.detail;
    const curves = [{ run, colour: null, shown: seen, thinned }];
    this.#figure = { name: run, tag: this.tag, axis: plot.axis, view, box, theme, paint, curves };
  }

  /** What is said of the place pointed at. */
  get said(): string {
    return this.#readout.textContent ?? "";
  }

  /** Say what is at a place of the axis; null: at none. */
  point(px: number | null): void {
    const x = px === null ? null : fromPixel(px, this.#view, this.#left, this.#width);
    const found = x === null ? null : this.#sayAt(x);
    setText(this.#readout, found ?? "");
  }

  #sayAt(x: number): string | null {
    const found = nearestPoint(this.#curve?.shown ?? [], x);
    if (!found) return null;
    const { line, i } = found;
    const smoothed = line.shown === line.raw ? "" : ` (smoothed ${formatValue(line.shown[i])})`;
    const wall = line.wall[i] as number;
    const when = wall > 0 ? `, ${formatMoment(wall)}` : "";
    return `${formatValue(line.raw[i])}${smoothed} at step ${formatCount(line.step[i])}${when}${line.abandoned ? ", recomputed" : ""}`;
  }
}

const lineStyle = (theme: Theme, columns: boolean): LineStyle => ({
  kept: theme.line,
  abandoned: theme.wasted,
  odd: theme.tone.warn,
  width: 1.75,
  withRaw: true,
  columns,
});
