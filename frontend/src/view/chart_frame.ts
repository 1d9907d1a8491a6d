/** What is around a chart's lines: its name, notes and buttons, the grid, and the values beside it. */
import type { Axis } from "../logic/axis";
import type { Shown } from "../logic/layers";
import { extent } from "../logic/segments";
import type { View } from "../logic/view";
import { toPixel } from "../logic/view";
import type { YScale } from "../logic/y_scale";
import { makeYScale, yPixel } from "../logic/y_scale";
import { Canvas } from "./canvas";
import type { Figure } from "./chart_export";
import { chartButtons } from "./chart_export";
import type { Box } from "./chart_lines";
import { h, iconButton, setAttribute, setText } from "./element";
import { ticksFor } from "./ruler";
import type { Theme } from "./theme";

export class ChartFrame {
  readonly #note = h("span", { class: "muted" });
  #words = "";
  protected readonly canvas = new Canvas("chart-canvas");
  readonly area = h("div", { class: "chart-area", role: "img" }, this.canvas.element);
  readonly element: HTMLElement;
  /** As it was drawn last. */
  protected figure: Figure | null = null;

  /** `beside`: what stands between the name and the note. */
  constructor(
    readonly tag: string,
    hide: () => void,
    ...beside: HTMLElement[]
  ) {
    const close = iconButton("×", `Hide ${tag}`, "Hide this tag", hide);
    const head = [...beside, this.#note, ...chartButtons(tag, () => this.figure), close];
    this.element = h(
      "section",
      { class: "chart", "aria-label": `Scalar ${tag}` },
      h("div", { class: "chart-head" }, h("h3", { title: tag }, tag), ...head),
      this.area,
    );
    this.say("reading…");
  }

  /** What there is to say of the points; `described`: the same for who cannot see them. */
  protected say(words: string, described = words): void {
    this.#words = words;
    setText(this.#note, words);
    setAttribute(this.area, "aria-label", `${this.tag}: ${described}`);
  }

  /** The scale of what is in sight. The note says so where points are, and a logarithm shows none. */
  protected scaleOf(pieces: readonly Shown[], view: View, log: boolean, height: number): YScale {
    let [least, most] = [Infinity, -Infinity];
    let hasLines = false;
    for (const { lines, lo, hi } of pieces) {
      if (lo >= view.hi || hi <= view.lo) continue;
      hasLines ||= lines.length > 0;
      const range = extent(lines, Math.max(lo, view.lo), Math.min(hi, view.hi), log);
      if (!range) continue;
      least = Math.min(least, range[0]);
      most = Math.max(most, range[1]);
    }
    const isKnown = least <= most;
    setText(this.#note, log && hasLines && !isKnown ? "nothing above 0 here: no logarithm" : this.#words);
    return makeYScale(isKnown ? [least, most] : null, log, height);
  }
}

/** Have a chart for each of these tags, in their order, and no other; `make` makes one. */
export function arrange<Kind extends ChartFrame>(
  list: HTMLElement,
  charts: Map<string, Kind>,
  tags: readonly string[],
  make: (tag: string) => Kind,
): void {
  for (const [tag, chart] of charts) {
    if (tags.includes(tag)) continue;
    chart.element.remove();
    charts.delete(tag);
  }
  tags.forEach((tag, i) => {
    const chart = charts.get(tag) ?? make(tag);
    charts.set(tag, chart);
    const at = list.children[i];
    if (at !== chart.element) list.insertBefore(chart.element, at ?? null);
  });
}

export function paintGrid(
  c: CanvasRenderingContext2D,
  axis: Axis,
  view: View,
  scale: YScale,
  box: Box,
  theme: Theme,
): void {
  const { left, top, width, height } = box;
  c.font = theme.font;
  c.textAlign = "right";
  c.textBaseline = "middle";
  c.fillStyle = theme.muted;
  c.strokeStyle = theme.grid;
  c.lineWidth = 1;
  c.beginPath();
  for (const { x } of ticksFor(axis, view, width)) {
    const at = Math.round(toPixel(x, view, left, width)) + 0.5;
    c.moveTo(at, top);
    c.lineTo(at, top + height);
  }
  for (const { y, label } of scale.ticks) {
    const at = Math.round(yPixel(y, scale, top, height)) + 0.5;
    c.moveTo(left, at);
    c.lineTo(left + width, at);
    c.fillText(label, left - 8, at);
  }
  c.stroke();
  c.textAlign = "left";
}
