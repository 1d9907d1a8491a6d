/** The chosen tags of a run, each with its curve. */
import type { Plot } from "../logic/plot";
import { momentOf } from "../logic/plot";
import { defaultTags } from "../logic/tags";
import type { View } from "../logic/view";
import type { Stretch } from "../logic/window";
import type { Tag } from "../types/api";
import type { ChartOptions } from "./chart";
import { Chart } from "./chart";
import { arrange } from "./chart_frame";
import type { Curve } from "./curve_loader";
import { CurveLoader } from "./curve_loader";
import { h } from "./element";
import type { Theme } from "./theme";

export class Charts {
  readonly element = h("div", { class: "charts" });
  readonly #charts = new Map<string, Chart>();
  readonly #loader = new CurveLoader((curve) => {
    this.#showCurve(curve);
    this.redraw();
  });
  #plot: Plot | null = null;
  #tags: Tag[] = [];
  #smoothing = 0;

  constructor(
    private readonly run: string,
    private readonly redraw: () => void,
    private readonly added: (chart: Chart) => void,
    private readonly remove: (tag: string) => void,
  ) {}

  /** The tags that are drawn where none are chosen. */
  chosen(wanted: string[] | null): string[] {
    return wanted ? wanted : defaultTags(this.#tags);
  }

  setTags(tags: Tag[]): void {
    this.#tags = tags;
  }

  setPlot(plot: Plot): void {
    this.#plot = plot;
    const { axis } = plot;
    this.#loader.setPlace(axis.kind, ({ header }) => {
      const sessions = header.segments.map((segment) => plot.sessionIndex.get(segment.session ?? ""));
      if (axis.kind === "step") return (_, step) => step;
      return (wall, step, segment) =>
        axis.ofWall(wall > 0 ? wall : momentOf(plot, step, sessions[segment]), sessions[segment]);
    });
    for (const tag of this.#charts.keys()) this.#showCurve(this.#loader.curve(this.run, tag));
  }

  /** Show exactly these, in their order. */
  show(names: string[], options: ChartOptions): void {
    this.#smoothing = options.smoothing;
    arrange(this.element, this.#charts, names, (name) => {
      const chart = new Chart(name, () => this.remove(name));
      this.added(chart);
      return chart;
    });
    for (const [name, chart] of this.#charts) {
      chart.setOptions(options);
      this.#showCurve(this.#loader.curve(this.run, name));
    }
  }

  /** Fetch what a stretch needs. */
  fetch(stretch: Stretch, width: number): void {
    if (!this.#plot) return;
    const order = [...this.#charts.keys()].map((tag) => {
      const curve = this.#loader.curve(this.run, tag);
      // Another number of points is another curve.
      curve.version = this.#tags.find((known) => known.tag === tag)?.points ?? 0;
      return curve;
    });
    const part = stretch.from === null ? null : stretch;
    this.#loader.fetch(order, { by: stretch.by, smoothing: this.#smoothing, stretch: part, width });
  }

  draw(view: View, left: number, width: number, theme: Theme): void {
    for (const chart of this.#charts.values()) chart.draw(view, left, width, theme);
  }

  /** What the charts say of the place pointed at. */
  readouts(): string {
    return [...this.#charts].map(([tag, chart]) => `${tag}: ${chart.said || "nothing"}`).join("; ");
  }

  point(px: number | null): void {
    for (const chart of this.#charts.values()) chart.point(px);
  }

  close(): void {
    this.#loader.close();
    this.#charts.clear();
  }

  #showCurve(curve: Curve): void {
    if (this.#plot) this.#charts.get(curve.tag)?.setCurve(curve, this.#plot);
  }
}
