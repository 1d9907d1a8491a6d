/** One tag over the axis: grid, scale, restarts, and the lines of its segments. */

import { formatCount, formatMoment, formatValue, plural } from "../logic/format";
import type { Plot } from "../logic/plot";
import { momentOf } from "../logic/plot";
import { nearest } from "../logic/search";
import type { Line } from "../logic/segments";
import { extent, linesOf } from "../logic/segments";
import type { View } from "../logic/view";
import { fromPixel, toPixel } from "../logic/view";
import type { Stretch } from "../logic/window";
import type { YScale } from "../logic/y_scale";
import { makeYScale, yPixel } from "../logic/y_scale";
import type { Columns, ScalarHeader } from "../types/api";
import { Canvas } from "./canvas";
import type { Box } from "./chart_lines";
import { drawLines } from "./chart_lines";
import { h, setAttribute, setText } from "./element";
import { paintBoundaries } from "./paint";
import { ticksFor } from "./ruler";
import type { Theme } from "./theme";

export interface ChartOptions {
  /** Done by the backend, before it thins. */
  smoothing: number;
  log: boolean;
}

/** What the backend answered, and its lines on the axis. */
interface Layer {
  scalars: Columns<ScalarHeader>;
  lines: Line[];
}

/** Lines, and the part of the axis in which they are drawn. */
interface Shown {
  lines: Line[];
  lo: number;
  hi: number;
}

const HEIGHT = 150;
const PAD_TOP = 6;
const PAD_BOTTOM = 6;

export class Chart {
  private readonly readout = h("span", { class: "readout" });
  private readonly note = h("span", { class: "muted" });
  readonly area = h("div", { class: "chart-area", role: "img" });
  readonly element: HTMLElement;
  private readonly canvas = new Canvas("chart-canvas");
  private plot: Plot | null = null;
  private whole: Layer | null = null;
  /** Finer, of a part of the axis. */
  private window: (Layer & { stretch: Stretch }) | null = null;
  private options: ChartOptions = { smoothing: 0, log: false };
  private view: View = { lo: 0, hi: 1 };
  private left = 0;
  private width = 0;
  private y: YScale = makeYScale(null, false, HEIGHT);

  constructor(
    readonly tag: string,
    remove: () => void,
  ) {
    const close = h(
      "button",
      { type: "button", class: "icon", title: "Hide this tag", "aria-label": `Hide ${tag}`, onclick: remove },
      "×",
    );
    this.element = h(
      "section",
      { class: "chart", "aria-label": `Scalar ${tag}` },
      h("div", { class: "chart-head" }, h("h3", { title: tag }, tag), this.readout, this.note, close),
      this.area,
    );
    this.area.append(this.canvas.element);
    this.say("reading…");
  }

  setWhole(scalars: Columns<ScalarHeader>, plot: Plot): void {
    this.whole = { scalars, lines: [] };
    this.setPlot(plot);
  }

  setWindow(found: { scalars: Columns<ScalarHeader>; stretch: Stretch } | null, plot: Plot): void {
    this.window = found && { ...found, lines: [] };
    this.setPlot(plot);
  }

  setPlot(plot: Plot): void {
    this.plot = plot;
    this.place();
  }

  setOptions(options: ChartOptions): void {
    this.options = options;
  }

  fail(words: string): void {
    this.say(words);
  }

  /** What there is to say instead of points, for the eye and for a reader of the page. */
  private say(words: string): void {
    setText(this.note, words);
    setAttribute(this.area, "aria-label", `${this.tag}: ${words}`);
  }

  private place(): void {
    const { plot, whole, window } = this;
    if (!plot) return;
    for (const layer of [whole, window]) if (layer) layer.lines = this.linesOn(plot, layer.scalars);
    const latest = window ?? whole;
    if (!latest) return;
    const { points, thinned } = latest.scalars.header;
    const again = latest.lines.some((line) => line.abandoned) ? ", dashed: recomputed" : "";
    setText(this.note, `${plural(points, "point")}${thinned ? ", extremes per pixel" : ""}${again}`);
    setAttribute(this.area, "aria-label", this.describe(latest));
  }

  private linesOn(plot: Plot, scalars: Columns<ScalarHeader>): Line[] {
    const { axis } = plot;
    const sessions = scalars.header.segments.map((segment) => plot.sessionIndex.get(segment.session ?? ""));
    return linesOf(scalars, (wall, step, segment) =>
      axis.kind === "step"
        ? step
        : axis.ofWall(wall > 0 ? wall : momentOf(plot, step, sessions[segment]), sessions[segment]),
    );
  }

  private describe({ scalars, lines }: Layer): string {
    const last = lines.filter((line) => !line.abandoned).at(-1);
    const value = last?.raw.at(-1);
    return `${this.tag}: ${plural(scalars.header.points, "point")}, last ${formatValue(value)} at step ${formatCount(last?.step.at(-1))}`;
  }

  /** The window where it has points, and the whole around it, which may be coarser. */
  private shown(): Shown[] {
    const { whole, window, plot } = this;
    const everywhere = { lo: -Infinity, hi: Infinity };
    if (!window || !whole) return [whole, window].flatMap((layer) => (layer ? [{ ...layer, ...everywhere }] : []));
    const isHere = (window.stretch.by === "step") === (plot?.axis.kind === "step");
    const ends = window.lines.map(({ xs }) => [xs[0] ?? Infinity, xs.at(-1) ?? -Infinity] as const);
    const lo = Math.min(...ends.map(([first]) => first));
    const hi = Math.max(...ends.map(([, last]) => last));
    if (!isHere || !(lo < hi)) return [{ ...whole, ...everywhere }];
    return [
      { ...whole, lo: -Infinity, hi: lo },
      { ...window, lo, hi },
      { ...whole, lo: hi, hi: Infinity },
    ];
  }

  draw(view: View, left: number, width: number, theme: Theme): void {
    if (!this.plot) return;
    this.view = view;
    this.left = left;
    this.width = width;
    const box = { left, top: PAD_TOP, width, height: HEIGHT - PAD_TOP - PAD_BOTTOM };
    const seen = this.shown().filter(({ lo, hi }) => lo < view.hi && hi > view.lo);
    const ranges = seen.map(({ lines, lo, hi }) =>
      extent(lines, Math.max(lo, view.lo), Math.min(hi, view.hi), this.options.log),
    );
    const range = ranges.reduce((a, b) => (a && b ? [Math.min(a[0], b[0]), Math.max(a[1], b[1])] : (a ?? b)), null);
    this.y = makeYScale(range, this.options.log, box.height);
    if (!range && this.options.log && seen.some(({ lines }) => lines.length))
      setText(this.note, "nothing above 0 here: no logarithm");
    const c = this.canvas.begin(left + width + 1, HEIGHT);
    this.drawGrid(c, this.plot, box, theme);
    paintBoundaries({ c, theme, plot: this.plot, view, left, width }, box.top, box.height, true);
    for (const { lines, lo, hi } of seen) {
      const from = Math.max(left, Math.round(toPixel(lo, view, left, width)));
      const to = Math.min(left + width, Math.round(toPixel(hi, view, left, width)));
      drawLines(c, lines, view, this.y, box, { left: from, width: to - from }, theme);
    }
  }

  private drawGrid(c: CanvasRenderingContext2D, plot: Plot, box: Box, theme: Theme): void {
    const { left, top, width, height } = box;
    c.font = theme.font;
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.fillStyle = theme.muted;
    c.strokeStyle = theme.grid;
    c.lineWidth = 1;
    c.beginPath();
    for (const { x } of ticksFor(plot.axis, this.view, width)) {
      const at = Math.round(toPixel(x, this.view, left, width)) + 0.5;
      c.moveTo(at, top);
      c.lineTo(at, top + height);
    }
    for (const { y, label } of this.y.ticks) {
      const at = Math.round(yPixel(y, this.y, top, height)) + 0.5;
      c.moveTo(left, at);
      c.lineTo(left + width, at);
      c.fillText(label, left - 8, at);
    }
    c.stroke();
    c.textAlign = "left";
  }

  /** What is said of the place pointed at. */
  get said(): string {
    return this.readout.textContent ?? "";
  }

  /** Say what is at a place of the axis; null: at none. */
  point(px: number | null): void {
    const x = px === null ? null : fromPixel(px, this.view, this.left, this.width);
    const found = x === null ? null : this.nearestPoint(x);
    setText(this.readout, found ?? "");
  }

  private nearestPoint(x: number): string | null {
    let best: { line: Line; i: number; away: number } | null = null;
    for (const line of this.shown().flatMap(({ lines, lo, hi }) => (x >= lo && x <= hi ? lines : []))) {
      const i = nearest(line.xs, x);
      if (i < 0) continue;
      const away = Math.abs((line.xs[i] as number) - x);
      if (!best || away < best.away || (away === best.away && best.line.abandoned)) best = { line, i, away };
    }
    if (!best) return null;
    const { line, i } = best;
    const smoothed = line.shown === line.raw ? "" : ` (smoothed ${formatValue(line.shown[i])})`;
    const wall = line.wall[i] as number;
    const when = wall > 0 ? `, ${formatMoment(wall)}` : "";
    return `${formatValue(line.raw[i])}${smoothed} at step ${formatCount(line.step[i])}${when}${line.abandoned ? ", recomputed" : ""}`;
  }
}
