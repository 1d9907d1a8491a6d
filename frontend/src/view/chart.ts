/** One tag over the axis. uPlot keeps the scales, axes and grid; the lines are ours, since segments may overlap. */
import uPlot from "uplot";
import type { Plot } from "../logic/plot";
import { momentOf } from "../logic/plot";
import { nearest } from "../logic/search";
import type { Line } from "../logic/segments";
import { extent, linesOf } from "../logic/segments";
import type { View } from "../logic/view";
import { fromPixel } from "../logic/view";
import type { YScale } from "../logic/y_scale";
import { makeYScale } from "../logic/y_scale";
import { formatCount, formatMoment, formatValue, plural } from "../logic/format";
import type { Columns, ScalarHeader } from "../types/api";
import { drawLines } from "./chart_lines";
import { h, setText } from "./element";
import { paintBoundaries } from "./paint";
import { ticksFor } from "./ruler";
import type { Theme } from "./theme";

export interface ChartOptions {
  smoothing: number;
  log: boolean;
}

const HEIGHT = 150;
const PAD_TOP = 6;
const PAD_BOTTOM = 6;

export class Chart {
  private readonly readout = h("span", { class: "readout" });
  private readonly note = h("span", { class: "muted" });
  readonly area = h("div", { class: "chart-area", role: "img" });
  readonly element: HTMLElement;
  private chart: uPlot | null = null;
  private plot: Plot | null = null;
  private scalars: Columns<ScalarHeader> | null = null;
  private lines: Line[] = [];
  private options: ChartOptions = { smoothing: 0, log: false };
  private theme: Theme | null = null;
  private view: View = { lo: 0, hi: 1 };
  private left = 0;
  private width = 0;
  private y: YScale = makeYScale(null, false, HEIGHT);

  constructor(
    readonly tag: string,
    remove: () => void,
  ) {
    const close = h("button", { type: "button", class: "icon", title: "Hide this tag", "aria-label": `Hide ${tag}`, onclick: remove }, "×");
    this.element = h(
      "section",
      { class: "chart", "aria-label": `Scalar ${tag}` },
      h("div", { class: "chart-head" }, h("h3", { title: tag }, tag), this.readout, this.note, close),
      this.area,
    );
    setText(this.note, "reading…");
  }

  setScalars(scalars: Columns<ScalarHeader>, plot: Plot): void {
    this.scalars = scalars;
    this.plot = plot;
    this.place();
  }

  setPlot(plot: Plot): void {
    this.plot = plot;
    this.place();
  }

  setOptions(options: ChartOptions): void {
    if (options.smoothing === this.options.smoothing && options.log === this.options.log) return;
    const smoothing = options.smoothing !== this.options.smoothing;
    this.options = options;
    if (smoothing) this.place();
  }

  fail(words: string): void {
    setText(this.note, words);
  }

  private place(): void {
    const { plot, scalars } = this;
    if (!plot || !scalars) return;
    const { axis } = plot;
    const sessions = scalars.header.segments.map((segment) => plot.sessionIndex.get(segment.session ?? ""));
    this.lines = linesOf(
      scalars,
      (wall, step, segment) =>
        axis.kind === "step" ? step : axis.ofWall(wall > 0 ? wall : momentOf(plot, step, sessions[segment]), sessions[segment]),
      this.options.smoothing,
    );
    const { points, thinned } = scalars.header;
    const again = this.lines.some((line) => line.abandoned) ? ", dashed: done again" : "";
    setText(this.note, `${plural(points, "point")}${thinned ? ", extremes per pixel" : ""}${again}`);
    this.area.setAttribute("aria-label", this.describe());
  }

  private describe(): string {
    const last = this.lines.filter((line) => !line.abandoned).at(-1);
    const value = last?.raw.at(-1);
    return `${this.tag}: ${plural(this.scalars?.header.points ?? 0, "point")}, last ${formatValue(value)} at step ${formatCount(last?.step.at(-1))}`;
  }

  draw(view: View, left: number, width: number, theme: Theme): void {
    if (!this.plot) return;
    this.view = view;
    this.theme = theme;
    const range = extent(this.lines, view.lo, view.hi, this.options.log);
    this.y = makeYScale(range, this.options.log, HEIGHT - PAD_TOP - PAD_BOTTOM);
    if (this.scalars && !range && this.options.log && this.lines.length) setText(this.note, "nothing above 0 here: no logarithm");
    if (!this.chart || this.left !== left) {
      this.left = left;
      this.width = width;
      this.chart?.destroy();
      this.chart = new uPlot(this.setup(), this.data(), this.area);
    } else if (this.width !== width) {
      this.width = width;
      this.chart.setSize({ width: left + width + 1, height: HEIGHT });
    }
    this.chart.batch(() => {
      this.chart?.setData(this.data(), false);
      this.chart?.setScale("x", { min: view.lo, max: view.hi });
      this.chart?.setScale("y", { min: this.y.lo, max: this.y.hi });
    });
    this.chart.redraw(false, true);
  }

  private setup(): uPlot.Options {
    const theme = (): Theme => this.theme as Theme;
    const grid = { stroke: () => theme().grid, width: 1 };
    return {
      width: this.left + this.width + 1,
      height: HEIGHT,
      padding: [PAD_TOP, 1, PAD_BOTTOM, 0],
      cursor: { show: false },
      legend: { show: false },
      scales: {
        x: { time: false, auto: false, range: () => [this.view.lo, this.view.hi] },
        y: { auto: false, range: () => [this.y.lo, this.y.hi], distr: this.options.log ? 3 : 1 },
      },
      axes: [
        {
          size: 0,
          gap: 0,
          grid,
          ticks: { show: false },
          splits: () => (this.plot ? ticksFor(this.plot.axis, this.view, this.width).map((tick) => tick.x) : []),
          values: (_, splits) => splits.map(() => ""),
        },
        {
          size: this.left,
          gap: 8,
          font: theme().font,
          stroke: () => theme().muted,
          grid,
          ticks: { show: false },
          splits: () => this.y.ticks.map((tick) => tick.y),
          filter: (_, splits) => splits,
          values: () => this.y.ticks.map((tick) => tick.label),
        },
      ],
      series: [{}, { show: true, paths: () => null, points: { show: false } }],
      hooks: { draw: [(chart) => this.paint(chart)] },
    };
  }

  private data(): uPlot.AlignedData {
    return [
      [this.view.lo, this.view.hi],
      [this.y.lo, this.y.hi],
    ];
  }

  private paint(chart: uPlot): void {
    if (!this.plot || !this.theme) return;
    const ratio = uPlot.pxRatio;
    const c = chart.ctx;
    const box = { left: chart.bbox.left / ratio, top: chart.bbox.top / ratio, width: this.width, height: chart.bbox.height / ratio };
    c.save();
    c.scale(ratio, ratio);
    const frame = { c, theme: this.theme, plot: this.plot, view: this.view, left: box.left, width: box.width };
    paintBoundaries(frame, box.top, box.height, true);
    drawLines(c, this.lines, this.view, this.y, box, this.theme);
    c.restore();
  }

  /** Say what is at a place of the axis; null: at none. */
  point(px: number | null): void {
    const x = px === null ? null : fromPixel(px, this.view, this.left, this.width);
    const found = x === null ? null : this.nearestPoint(x);
    setText(this.readout, found ?? "");
  }

  private nearestPoint(x: number): string | null {
    let best: { line: Line; i: number; away: number } | null = null;
    for (const line of this.lines) {
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
    return `${formatValue(line.raw[i])}${smoothed} at step ${formatCount(line.step[i])}${when}${line.abandoned ? ", done again" : ""}`;
  }

  close(): void {
    this.chart?.destroy();
    this.chart = null;
  }
}
