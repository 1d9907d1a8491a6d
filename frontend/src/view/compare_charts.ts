/** The charts of a comparison: one axis, one cursor, one stretch for all. */
import type { Axis, AxisKind } from "../logic/axis";
import { colourOf } from "../logic/colours";
import type { Reading } from "../logic/overlay";
import { BY, lastReading, overlayAxis, placing, readingAt, spanOf } from "../logic/overlay";
import type { Chosen, UrlState } from "../logic/url_state";
import type { View } from "../logic/view";
import { stretchOf } from "../logic/window";
import { AxisFrame } from "./axis_frame";
import { arrange } from "./chart_frame";
import type { Curve } from "./curve_loader";
import { CurveLoader } from "./curve_loader";
import { h } from "./element";
import type { Gestures } from "./gestures";
import { KEYS, listen, onKey } from "./gestures";
import { OverlayChart } from "./overlay_chart";
import { Ruler } from "./ruler";
import type { Theme } from "./theme";

const GUTTER_PX = 76;
/** More runs than this are thinned to two pixels. */
const FEW = 6;
/** Beyond the ends of a curve it is still pointed at, in pixels. */
const SLACK_PX = 8;

export interface ChartsListener {
  change(patch: Partial<UrlState>, replace: boolean): void;
  /** The cursor is at another place, or there is other data: say what is there. */
  moved(): void;
  /** A run is pointed at, or none. */
  hovered(run: string | null): void;
  hide(tag: string): void;
}

export class CompareCharts {
  readonly #ruler = new Ruler();
  readonly #list = h("div", { class: "charts" });
  readonly #charts = new Map<string, OverlayChart>();
  readonly #loader = new CurveLoader((curve) => this.#onCurve(curve));
  readonly #frame: AxisFrame;
  readonly #seen = new IntersectionObserver((entries) => this.#onSeen(entries), { rootMargin: "100px" });
  #state: UrlState | null = null;
  /** The runs that have a tag. */
  #runsOf: ((tag: string) => readonly Chosen[]) | null = null;
  /** Of how many runs the tags are not known yet. */
  #unread = 0;
  #axis: Axis = overlayAxis("step", null);
  #span: View | null = null;
  #highlighted: string | null = null;
  /** The place pointed at, on the axis. */
  #x: number | null = null;
  /** The tag of the chart that was pointed at last. */
  tag: string | null = null;

  constructor(private readonly to: ChartsListener) {
    this.#frame = new AxisFrame({
      all: () => this.#axis.all,
      gutter: () => GUTTER_PX,
      draw: (theme, printing) => this.#draw(theme, printing),
      fetch: () => this.#fetch(),
      zoomed: () => {},
      settled: (zoom) => to.change(zoom ? { zoom, axis: this.kind } : { zoom }, true),
    });
    const strip = h(
      "div",
      {
        class: "strip",
        tabindex: 0,
        role: "group",
        "aria-label": `Charts. ${KEYS}; Shift and an arrow move the cursor, whose values are in the table.`,
      },
      this.#ruler.element,
    );
    strip.addEventListener("keydown", (event) => {
      if (this.#onCursorKey(event) || onKey(event, this.#gestures(null))) event.preventDefault();
    });
    listen(this.#ruler.element, this.#gestures(null), true);
    this.#frame.hold(strip, this.#list);
    this.#place();
  }

  get element(): HTMLElement {
    return this.#frame.element;
  }

  get kind(): AxisKind {
    return this.#axis.kind;
  }

  get tags(): string[] {
    return [...this.#charts.keys()];
  }

  /** Show these tags, each of the runs that have it. */
  show(state: UrlState, tags: readonly string[], runsOf: (tag: string) => readonly Chosen[], unread: number): void {
    const before = this.#state;
    if (!before || state.zoom !== before.zoom) this.#frame.zoom.adopt(state.zoom);
    this.#state = state;
    this.#runsOf = runsOf;
    this.#unread = unread;
    const kind = state.axis ?? "step";
    arrange(this.#list, this.#charts, tags, (tag) => this.#make(tag));
    if (this.tag === null || !this.#charts.has(this.tag)) this.tag = tags[0] ?? null;
    if (kind !== this.#axis.kind) {
      this.#axis = overlayAxis(kind, null);
      this.#place();
      this.#x = null;
    }
    this.#frame.fetch(before?.smoothing === state.smoothing);
    this.#compose();
  }

  /** Ask again for the curves of runs that have changed; null: of all. */
  refresh(changed: ReadonlySet<string> | null): void {
    this.#loader.refresh(new Set(this.#state?.chosen.map(({ run }) => run)), changed);
    this.#frame.fetch(true);
  }

  highlight(run: string | null): void {
    if (run === this.#highlighted) return;
    this.#highlighted = run;
    this.#frame.schedule();
  }

  /** What a tag is at the cursor, or at last where there is none, by run. */
  readings(tag: string): { x: number | null; of: Map<string, Reading | null> } {
    const x = this.#x;
    const slack = this.#frame.placeOf(SLACK_PX) - this.#frame.placeOf(0);
    const of = new Map<string, Reading | null>();
    for (const { run } of this.#runsOf?.(tag) ?? []) {
      const { shown } = this.#loader.curve(run, tag);
      of.set(run, x === null ? lastReading(shown) : readingAt(shown, x, slack));
    }
    return { x, of };
  }

  zoomBy(factor: number): void {
    this.#frame.zoom.by(factor);
  }

  /** Show all; whether less was shown. */
  whole(): boolean {
    return this.#frame.zoom.reset();
  }

  restyle(): void {
    this.#frame.restyle();
    this.#compose();
  }

  print(printing: boolean): void {
    this.#frame.print(printing);
  }

  close(): void {
    this.#seen.disconnect();
    this.#frame.close();
    this.#loader.close();
  }

  #place(): void {
    const { kind } = this;
    this.#loader.setPlace(kind, (scalars) => placing(kind, scalars));
  }

  #make(tag: string): OverlayChart {
    const chart = new OverlayChart(tag, () => this.to.hide(tag));
    this.#seen.observe(chart.element);
    listen(chart.area, this.#gestures(chart), false);
    return chart;
  }

  #gestures(chart: OverlayChart | null): Gestures {
    return this.#frame.zoom.gestures(
      (px, py) => this.#point(px, py, chart),
      () => {},
    );
  }

  #onSeen(entries: IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting } of entries)
      for (const chart of this.#charts.values()) if (chart.element === target) chart.isSeen = isIntersecting;
    this.#frame.schedule();
    this.#frame.fetch(true);
  }

  #onCurve(curve: Curve): void {
    this.#compose(curve.tag);
    this.to.moved();
  }

  /** Put together what there is of a tag, or of all. */
  #compose(only: string | null = null): void {
    const state = this.#state;
    if (!state || !this.#runsOf) return;
    const dark = document.documentElement.classList.contains("dark");
    this.#span = null;
    for (const [tag, chart] of this.#charts) {
      const curves = this.#runsOf(tag).map((chosen) => ({ ...chosen, ...this.#loader.curve(chosen.run, tag) }));
      for (const { shown } of curves) for (const { lines } of shown) this.#span = spanOf(lines, this.#span);
      if (only !== null && only !== tag) continue;
      const there = curves.filter(({ whole }) => whole.layer);
      const drawn = there.map(({ run, colour, shown }) => ({ run, colour: colourOf(colour, dark), shown }));
      const thinned = there.some(({ whole, window }) => (window.layer ?? whole.layer)?.scalars.header.thinned);
      const problem = curves.find((curve) => curve.problem !== null)?.problem ?? null;
      const waiting = this.#unread + curves.filter(({ whole }) => whole.key === "").length;
      chart.setCurves(drawn, thinned, waiting, problem);
    }
    this.#axis = overlayAxis(this.#axis.kind, this.#span);
    this.#frame.schedule();
  }

  #fetch(): void {
    const state = this.#state;
    if (!state) return;
    const { zoom, geometry } = this.#frame;
    const inSight = [...this.#charts.values()].filter(({ isSeen }) => isSeen);
    const order = inSight.flatMap(({ tag }) =>
      (this.#runsOf?.(tag) ?? []).map(({ run }) => this.#loader.curve(run, tag)),
    );
    const by = BY[this.kind];
    const stretch = zoom.stretch && { ...stretchOf(this.#axis, zoom.stretch), by };
    // Half a pixel of many lines over each other cannot be seen.
    const width = geometry.width / (state.chosen.length > FEW ? 2 : 1);
    this.#loader.fetch(order, { by, smoothing: state.smoothing, stretch, width });
  }

  #draw(theme: Theme, printing: boolean): void {
    const state = this.#state;
    if (!state) return;
    const { left, width } = this.#frame.geometry;
    const { view } = this.#frame.zoom;
    const look = { view, log: state.log, highlighted: this.#highlighted, baseline: state.baseline };
    this.#ruler.draw(this.#axis, view, left, width, theme);
    for (const chart of this.#charts.values())
      if (printing || chart.isSeen) chart.draw(this.#axis, look, left, width, theme);
    this.#showCursor();
  }

  #showCursor(): void {
    this.#frame.point(this.#x === null ? null : this.#frame.pixelOf(this.#x));
  }

  #setCursor(x: number | null): void {
    this.#x = x;
    this.#showCursor();
    this.to.moved();
  }

  #point(px: number | null, py: number, chart: OverlayChart | null): void {
    const inside = this.#frame.point(px) && px !== null;
    if (chart && inside) this.tag = chart.tag;
    this.#setCursor(inside ? this.#frame.placeOf(px) : null);
    this.to.hovered(chart && inside ? chart.runAt(px, py) : null);
  }

  #onCursorKey(event: KeyboardEvent): boolean {
    const x = this.#frame.moved(event, this.#x);
    if (x !== null) this.#setCursor(x);
    return x !== null;
  }
}
