/** One tag over the axis: grid, scale, restarts, and the lines of its segments. */

import { formatCount, formatMoment, formatValue, plural } from "../logic/format";
import type { Layer } from "../logic/layers";
import { nearestPoint } from "../logic/layers";
import type { Plot } from "../logic/plot";
import type { View } from "../logic/view";
import { fromPixel } from "../logic/view";
import type { Figure } from "./chart_export";
import { ChartFrame, paintGrid } from "./chart_frame";
import type { LineStyle } from "./chart_lines";
import { drawPieces } from "./chart_lines";
import type { Curve } from "./curve_loader";
import { h, setText } from "./element";
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

export class Chart extends ChartFrame {
  readonly #readout: HTMLElement;
  #plot: Plot | null = null;
  #curve: Curve | null = null;
  #options: ChartOptions = { smoothing: 0, log: false };
  #view: View = { lo: 0, hi: 1 };
  #left = 0;
  #width = 0;

  constructor(tag: string, hide: () => void) {
    const readout = h("span", { class: "readout" });
    super(tag, hide, readout);
    this.#readout = readout;
  }

  setCurve(curve: Curve, plot: Plot): void {
    this.#plot = plot;
    this.#curve = curve;
    const latest = curve.window.layer ?? curve.whole.layer;
    if (curve.problem !== null) this.say(curve.problem);
    if (!latest || curve.problem !== null) return;
    const { points, thinned } = latest.scalars.header;
    const again = latest.lines.some((line) => line.abandoned) ? ", dashed: recomputed" : "";
    this.say(`${plural(points, "point")}${thinned ? ", extremes per pixel" : ""}${again}`, described(latest));
  }

  setOptions(options: ChartOptions): void {
    this.#options = options;
  }

  draw(view: View, left: number, width: number, theme: Theme): void {
    const plot = this.#plot;
    if (!plot) return;
    this.#view = view;
    this.#left = left;
    this.#width = width;
    const box = { left, top: PAD_TOP, width, height: HEIGHT - PAD_TOP - PAD_BOTTOM };
    const shown = this.#curve?.shown ?? [];
    const scale = this.scaleOf(shown, view, this.#options.log, box.height);
    const paint: Figure["paint"] = (c, at) => {
      paintGrid(c, plot.axis, view, scale, at, theme);
      paintBoundaries({ c, theme, plot, view, left, width }, at.top, at.height, true);
      drawPieces(c, shown, view, scale, at, lineStyle(theme));
    };
    paint(this.canvas.begin(left + width + 1, HEIGHT), box);
    const thinned = (this.#curve?.window.layer ?? this.#curve?.whole.layer)?.scalars.header.thinned ?? false;
    const { run } = plot.detail;
    const curves = [{ run, colour: null, shown, thinned }];
    this.figure = { name: run, tag: this.tag, axis: plot.axis, view, box, theme, paint, curves };
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

function described({ scalars, lines }: Layer): string {
  const last = lines.filter((line) => !line.abandoned).at(-1);
  const points = plural(scalars.header.points, "point");
  return `${points}, last ${formatValue(last?.raw.at(-1))} at step ${formatCount(last?.step.at(-1))}`;
}

const lineStyle = (theme: Theme): LineStyle => ({
  kept: theme.line,
  abandoned: theme.wasted,
  odd: theme.tone.warn,
  width: 1.75,
  withRaw: true,
});
