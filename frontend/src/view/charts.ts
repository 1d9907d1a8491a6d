/** The chosen tags, their data fetched as fine as they are looked at. */

import type { Plot } from "../logic/plot";
import { defaultTags } from "../logic/tags";
import type { View } from "../logic/view";
import { BackendError, client, Latest } from "../net/client";
import type { Tag } from "../types/api";
import type { ChartOptions } from "./chart";
import { Chart } from "./chart";
import { h } from "./element";
import type { Theme } from "./theme";

interface Held {
  chart: Chart;
  latest: Latest;
  /** What was asked for last. */
  asked: string;
  /** How many points the tag had then. */
  points: number;
}

/** Fetched beyond both edges, in widths of the window, so that panning finds something there. */
const MARGIN = 0.5;
const AGAIN_MS = 500;

export class Charts {
  readonly element = h("div", { class: "charts" });
  private readonly held = new Map<string, Held>();
  private plot: Plot | null = null;
  private tags: Tag[] = [];
  private timer = 0;
  private smoothing = 0;

  constructor(
    private readonly run: string,
    private readonly redraw: () => void,
    private readonly added: (chart: Chart) => void,
    private readonly remove: (tag: string) => void,
  ) {}

  /** The tags that are drawn where none are chosen. */
  chosen(wanted: string[] | null): string[] {
    return wanted ? wanted : defaultTags(this.tags);
  }

  setTags(tags: Tag[]): void {
    this.tags = tags;
  }

  setPlot(plot: Plot): void {
    this.plot = plot;
    for (const { chart } of this.held.values()) chart.setPlot(plot);
  }

  /** Show exactly these, in their order. */
  show(names: string[], options: ChartOptions): void {
    this.smoothing = options.smoothing;
    for (const [name, held] of this.held) {
      if (names.includes(name)) continue;
      held.latest.cancel();
      held.chart.element.remove();
      this.held.delete(name);
    }
    names.forEach((name, i) => {
      let held = this.held.get(name);
      if (!held) {
        held = { chart: new Chart(name, () => this.remove(name)), latest: new Latest(), asked: "", points: -1 };
        this.held.set(name, held);
        this.added(held.chart);
      }
      held.chart.setOptions(options);
      const at = this.element.children[i];
      if (at !== held.chart.element) this.element.insertBefore(held.chart.element, at ?? null);
    });
  }

  /** Fetch what the window needs, once it has come to rest. */
  want(view: View, whole: boolean, width: number, atOnce: boolean): void {
    window.clearTimeout(this.timer);
    if (atOnce) this.fetch(view, whole, width);
    else this.timer = window.setTimeout(() => this.fetch(view, whole, width), 120);
  }

  private fetch(view: View, whole: boolean, width: number): void {
    const { plot } = this;
    if (!plot) return;
    const { axis } = plot;
    const room = (view.hi - view.lo) * MARGIN;
    const place = (x: number): number => axis.toWall(x) ?? x;
    const from = whole ? null : place(view.lo - room);
    const to = whole ? null : place(view.hi + room);
    const pixels = Math.min(8192, Math.max(16, Math.round(width * (whole ? 1 : 1 + 2 * MARGIN))));
    const by = axis.kind === "step" ? "step" : "wall";
    for (const [tag, held] of this.held) {
      const points = this.tags.find((known) => known.tag === tag)?.points ?? 0;
      const asked = `${by} ${from} ${to} ${pixels} ${this.smoothing}`;
      if (held.asked === asked && held.points === points) continue;
      held.asked = asked;
      held.points = points;
      void this.fetchOne(tag, held, { by, from, to, pixels, smoothing: this.smoothing || null });
    }
  }

  private async fetchOne(tag: string, held: Held, query: Parameters<typeof client.scalars>[2]): Promise<void> {
    try {
      const scalars = await held.latest.ask((signal) => client.scalars(this.run, tag, query, signal));
      if (!scalars || !this.plot) return;
      held.chart.setScalars(scalars, this.plot);
      this.redraw();
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      held.asked = "";
      held.chart.fail(error.kind === "starting" ? "being read…" : error.message);
      // The backend reads a run's scalars once somebody looks at them.
      if (error.kind === "starting") window.setTimeout(() => this.fetchAgain(tag, held, query), AGAIN_MS);
    }
  }

  private fetchAgain(tag: string, held: Held, query: Parameters<typeof client.scalars>[2]): void {
    if (this.held.get(tag) === held && held.asked === "") void this.fetchOne(tag, held, query);
  }

  draw(view: View, left: number, width: number, theme: Theme): void {
    for (const { chart } of this.held.values()) chart.draw(view, left, width, theme);
  }

  /** What the charts say of the place pointed at. */
  readouts(): string {
    return [...this.held].map(([tag, { chart }]) => `${tag}: ${chart.said || "nothing"}`).join("; ");
  }

  point(px: number | null): void {
    for (const { chart } of this.held.values()) chart.point(px);
  }

  close(): void {
    window.clearTimeout(this.timer);
    for (const { latest } of this.held.values()) latest.cancel();
    this.held.clear();
  }
}
