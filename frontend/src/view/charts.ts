/** The chosen tags, their data fetched as fine as they are looked at, and the whole curve once, around it. */
import type { Plot } from "../logic/plot";
import { defaultTags } from "../logic/tags";
import type { View } from "../logic/view";
import type { Stretch } from "../logic/window";
import { columnsOf } from "../logic/window";
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
  /** The whole curve, as far as it is known: how it was smoothed, and whether points were left out. */
  whole: { key: string; thinned: boolean } | null;
  latestWhole: Latest;
}

type Query = Parameters<typeof client.scalars>[2];

const AGAIN_MS = 500;

const keyOf = ({ by, smoothing }: Query): string => `${by} ${smoothing}`;

export class Charts {
  readonly element = h("div", { class: "charts" });
  private readonly held = new Map<string, Held>();
  private plot: Plot | null = null;
  private tags: Tag[] = [];
  private smoothing = 0;
  private wanted: { stretch: Stretch; width: number } | null = null;

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
      held.latestWhole.cancel();
      held.chart.element.remove();
      this.held.delete(name);
    }
    names.forEach((name, i) => {
      let held = this.held.get(name);
      if (!held) {
        held = {
          chart: new Chart(name, () => this.remove(name)),
          latest: new Latest(),
          asked: "",
          points: -1,
          whole: null,
          latestWhole: new Latest(),
        };
        this.held.set(name, held);
        this.added(held.chart);
      }
      held.chart.setOptions(options);
      const at = this.element.children[i];
      if (at !== held.chart.element) this.element.insertBefore(held.chart.element, at ?? null);
    });
  }

  /** Fetch what a stretch needs. */
  fetch(stretch: Stretch, width: number): void {
    this.wanted = { stretch, width };
    for (const [tag, held] of this.held) {
      const points = this.tags.find((known) => known.tag === tag)?.points ?? 0;
      const query = this.queryFor(held, stretch, width);
      const asked = JSON.stringify(query);
      if (held.asked === asked && held.points === points) continue;
      held.asked = asked;
      held.points = points;
      void this.fetchOne(tag, held, query);
    }
  }

  /** All of a curve that has few points, whatever is looked at. */
  private queryFor(held: Held, { by, from, to }: Stretch, width: number): Query {
    const query = { by, smoothing: this.smoothing || null };
    const isEnough = held.whole && !held.whole.thinned && held.whole.key === keyOf({ ...query, from, to, pixels: 0 });
    const stretch: Stretch = isEnough ? { by, from: null, to: null } : { by, from, to };
    return { ...query, ...stretch, pixels: columnsOf(stretch, width) };
  }

  private async fetchOne(tag: string, held: Held, query: Query): Promise<void> {
    try {
      const scalars = await held.latest.ask((signal) => client.scalars(this.run, tag, query, signal));
      if (!scalars || !this.plot) return;
      if (query.from === null) {
        held.latestWhole.cancel();
        held.whole = { key: keyOf(query), thinned: scalars.header.thinned };
        held.chart.setWhole(scalars, this.plot);
        held.chart.setWindow(null, this.plot);
        // Points that have come since then may be too many.
        if (this.wanted) this.fetch(this.wanted.stretch, this.wanted.width);
      } else {
        held.chart.setWindow({ scalars, stretch: query }, this.plot);
        if (held.whole?.key !== keyOf(query)) void this.fetchWhole(tag, held, query);
      }
      this.redraw();
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      held.asked = "";
      held.chart.fail(error.kind === "starting" ? "being read…" : error.message);
      // The backend reads a run's scalars once somebody looks at them.
      if (error.kind === "starting") window.setTimeout(() => this.fetchAgain(tag, held, query), AGAIN_MS);
    }
  }

  /** What is around a window, for who zooms out. */
  private async fetchWhole(tag: string, held: Held, window: Query): Promise<void> {
    const query: Query = { ...window, from: null, to: null };
    try {
      const scalars = await held.latestWhole.ask((signal) => client.scalars(this.run, tag, query, signal));
      if (!scalars || !this.plot) return;
      held.whole = { key: keyOf(query), thinned: scalars.header.thinned };
      held.chart.setWhole(scalars, this.plot);
      this.redraw();
    } catch (error) {
      // The window has its own answer; the next one asks again.
      if (!(error instanceof BackendError)) throw error;
    }
  }

  private fetchAgain(tag: string, held: Held, query: Query): void {
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
    for (const { latest, latestWhole } of this.held.values()) {
      latest.cancel();
      latestWhole.cancel();
    }
    this.held.clear();
  }
}
