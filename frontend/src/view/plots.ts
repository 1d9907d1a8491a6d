/** Everything over the one axis: ruler, timeline and charts, zoomed and pointed at together. */
import type { Axis, AxisKind } from "../logic/axis";
import { formatCount } from "../logic/format";
import { spoken } from "../logic/hover";
import type { Plot } from "../logic/plot";
import type { UrlState } from "../logic/url_state";
import type { View } from "../logic/view";
import { stretchOf } from "../logic/window";
import { FEW } from "../logic/workers";
import { report } from "../net/report";
import type { Tag } from "../types/api";
import { AxisFrame } from "./axis_frame";
import { Charts } from "./charts";
import { h, setText } from "./element";
import { FineMarks } from "./fine_marks";
import type { Gestures } from "./gestures";
import { listen, onKey, TIMELINE_KEYS } from "./gestures";
import { Ruler } from "./ruler";
import { TagPicker } from "./tag_picker";
import type { Theme } from "./theme";
import { Timeline } from "./timeline";
import { Tooltip } from "./tooltip";

const GUTTER_PX = 116;
const NARROW_GUTTER_PX = 84;
const NARROW_PX = 560;

export class Plots {
  readonly #ruler = new Ruler();
  readonly #timeline = new Timeline();
  readonly #tooltip = new Tooltip();
  readonly #spoken = h("p", { class: "spoken", role: "status" });
  /** Where the charts are read, in pixels: what is there changes with each drawing. */
  #pointed: number | null = null;
  /** Where the keyboard points: a place on the axis, and a height in the timeline. */
  #cursor: { x: number; py: number } | null = null;
  readonly #more = h("button", {
    class: "more",
    hidden: true,
    onclick: () => this.change({ allWorkers: !this.#state?.allWorkers }, true),
  });
  readonly #picker: TagPicker;
  readonly #charts: Charts;
  readonly #fineMarks: FineMarks;
  readonly element: HTMLElement;
  #plot: Plot | null = null;
  #tags: Tag[] = [];
  #state: UrlState | null = null;
  readonly #frame = new AxisFrame({
    all: () => this.#plot?.axis.all ?? { lo: 0, hi: 1 },
    gutter: (total) => (total < NARROW_PX ? NARROW_GUTTER_PX : GUTTER_PX),
    draw: (theme) => this.#draw(theme),
    fetch: () => this.#fetch(),
    zoomed: () => this.#tooltip.hide(),
    settled: (zoom) => this.change({ zoom }, true),
  });

  constructor(
    run: string,
    private readonly change: (patch: Partial<UrlState>, replace: boolean) => void,
    private readonly openStall: (index: number) => void,
  ) {
    this.#picker = new TagPicker(change);
    this.#fineMarks = new FineMarks(run, () => this.#showMarks());
    this.#charts = new Charts(
      run,
      () => this.#frame.schedule(),
      (chart) => listen(chart.area, this.#gestures(null), false),
      (tag) => change({ tags: this.#charts.chosen(this.#state?.tags ?? null).filter((name) => name !== tag) }, true),
    );
    const strip = h(
      "div",
      {
        class: "strip",
        tabindex: 0,
        role: "group",
        "aria-label": `Timeline. ${TIMELINE_KEYS}`,
      },
      this.#timeline.element,
      this.#more,
    );
    strip.addEventListener("keydown", (event) => {
      if (this.#onCursorKey(event) || onKey(event, this.#gestures(null))) event.preventDefault();
    });
    strip.addEventListener("blur", () => this.#point(null, 0, null, null));
    listen(this.#ruler.element, this.#gestures(null), true);
    listen(this.#timeline.element, this.#gestures(this.#timeline), false);
    this.#frame.hold(this.#ruler.element, strip, this.#picker.element, this.#charts.element, this.#spoken);
    this.element = h(
      "section",
      { class: "plots-section", "aria-label": "Timeline and scalars" },
      this.#frame.element,
      this.#tooltip.element,
    );
  }

  get kind(): AxisKind {
    return this.#plot?.axis.kind ?? "wall";
  }

  setPlot(plot: Plot): void {
    this.#plot = plot;
    this.#charts.setPlot(plot);
    this.#showMarks();
  }

  #showMarks(): void {
    if (this.#plot) this.#timeline.setPlot(this.#fineMarks.on(this.#plot));
    this.#frame.schedule();
  }

  setTags(tags: Tag[]): void {
    this.#tags = tags;
    this.#charts.setTags(tags);
    if (this.#state) this.update(this.#state);
  }

  update(state: UrlState): void {
    // News must not undo a zoom that is not in the address yet.
    if (!this.#state || state.zoom !== this.#state.zoom) this.#frame.zoom.adopt(state.zoom);
    const sliding = this.#state !== null && this.#state.smoothing !== state.smoothing;
    this.#state = state;
    const workers = this.#plot?.workers.length ?? 0;
    this.#more.hidden = workers <= FEW;
    setText(this.#more, state.allWorkers ? "Fewer workers" : `Show all ${formatCount(workers)} workers`);
    const chosen = this.#charts.chosen(state.tags);
    this.#charts.show(chosen, { smoothing: state.smoothing, log: state.log });
    this.#picker.update(this.#tags, chosen, state);
    this.#frame.schedule();
    this.#frame.fetch(!sliding);
  }

  /** A stretch of this axis on another; null where it is unknown. */
  translate(view: View, to: Axis): View | null {
    const lo = this.#plot?.axis.toWall(view.lo) ?? null;
    const hi = this.#plot?.axis.toWall(view.hi) ?? null;
    if (lo === null || hi === null) return null;
    const moved = { lo: to.ofWall(lo), hi: to.ofWall(hi) };
    return moved.lo < moved.hi ? moved : null;
  }

  restyle(): void {
    this.#frame.restyle();
  }

  print(printing: boolean): void {
    this.#frame.print(printing);
  }

  /** Zoom about the middle: a factor below 1 shows less. */
  zoomBy(factor: number): void {
    this.#frame.zoom.by(factor);
  }

  focusSearch(): void {
    this.#picker.focus();
  }

  escape(): boolean {
    return this.#picker.escape() || this.#frame.zoom.reset();
  }

  close(): void {
    this.#frame.close();
    this.#fineMarks.close();
    this.#charts.close();
  }

  #fetch(): void {
    if (!this.#plot) return;
    // A report has nothing finer than the whole.
    const stretch = stretchOf(this.#plot.axis, report ? null : this.#frame.zoom.stretch && this.#frame.zoom.view);
    this.#charts.fetch(stretch, this.#frame.geometry.width);
    void this.#fineMarks.fetch(this.#plot, stretch);
  }

  #draw(theme: Theme): void {
    if (!this.#plot) return;
    const { left, width } = this.#frame.geometry;
    const { view } = this.#frame.zoom;
    this.#ruler.draw(this.#plot.axis, view, left, width, theme);
    this.#timeline.draw(view, left, width, theme);
    this.#charts.draw(view, left, width, theme);
    this.#charts.point(this.#pointed);
  }

  #gestures(hovered: Timeline | null): Gestures {
    return this.#frame.zoom.gestures(
      (px, py, event) => this.#point(px, py, event, hovered),
      (px, py) => {
        const stall = hovered?.stallAt(px, py) ?? -1;
        if (stall >= 0) this.openStall(stall);
        else if (hovered) this.#showHover(px, py, null, hovered);
      },
    );
  }

  /** Go from mark to mark, or along the axis, with the keyboard. Whether it was such a key. */
  #onCursorKey(event: KeyboardEvent): boolean {
    if (event.key === "." || event.key === ",") {
      const { lo, hi } = this.#frame.zoom.view;
      const right = event.key === ".";
      const marks = this.#timeline.marks();
      const at = this.#cursor ?? { x: right ? lo : hi, py: right ? -1 : Infinity };
      const later = (a: { x: number; py: number }, b: { x: number; py: number }): boolean =>
        a.x > b.x || (a.x === b.x && a.py > b.py);
      const next = right ? marks.find((mark) => later(mark, at)) : marks.findLast((mark) => later(at, mark));
      if (next) this.#pointAt(next);
      return true;
    }
    const x = this.#frame.moved(event, this.#cursor?.x ?? null);
    if (x !== null) this.#pointAt({ x, py: -1 });
    return x !== null;
  }

  #pointAt(at: { x: number; py: number }): void {
    this.#cursor = at;
    this.#frame.zoom.reveal(at.x);
    // After the drawing, which says where everything is.
    this.#frame.schedule();
    requestAnimationFrame(() => {
      const px = this.#frame.pixelOf(at.x);
      this.#pointed = this.#frame.point(px) ? px : null;
      this.#charts.point(px);
      const hover = at.py < 0 ? null : this.#timeline.hoverAt(px, at.py);
      if (hover) this.#showHover(px, at.py, null, this.#timeline);
      else this.#tooltip.hide();
      setText(this.#spoken, hover ? spoken(hover) : this.#charts.readouts());
    });
  }

  #point(px: number | null, py: number, event: PointerEvent | null, hovered: Timeline | null): void {
    this.#pointed = this.#frame.point(px) ? px : null;
    this.#charts.point(this.#pointed);
    if (px === null || !hovered || !event) this.#tooltip.hide();
    else this.#showHover(px, py, event, hovered);
  }

  #showHover(px: number, py: number, event: PointerEvent | null, hovered: Timeline): void {
    const hover = hovered.hoverAt(px, py);
    hovered.element.classList.toggle("pointing", hovered.stallAt(px, py) >= 0);
    if (!hover) {
      this.#tooltip.hide();
      return;
    }
    const box = hovered.element.getBoundingClientRect();
    this.#tooltip.show(hover, event?.clientX ?? box.left + px, event?.clientY ?? box.top + py);
  }
}
