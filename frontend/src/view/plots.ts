/** Everything over the one axis: ruler, timeline and charts, zoomed and pointed at together. */
import type { Axis, AxisKind } from "../logic/axis";
import { formatCount } from "../logic/format";
import { spoken } from "../logic/hover";
import type { Plot } from "../logic/plot";
import type { UrlState } from "../logic/url_state";
import type { View } from "../logic/view";
import { clampView, isWhole, pan, toPixel, zoomAt } from "../logic/view";
import { stretchOf } from "../logic/window";
import { FEW } from "../logic/workers";
import { report } from "../net/report";
import type { Tag } from "../types/api";
import { sharpen } from "./canvas";
import { Charts } from "./charts";
import { h, setText } from "./element";
import { FineMarks } from "./fine_marks";
import type { Gestures } from "./gestures";
import { listen, onKey } from "./gestures";
import { PAPER_DOTS, PAPER_PX } from "./print";
import { Ruler } from "./ruler";
import { TagPicker } from "./tag_picker";
import type { Theme } from "./theme";
import { readTheme } from "./theme";
import { Timeline } from "./timeline";
import { Tooltip } from "./tooltip";

const GUTTER_PX = 116;
const NARROW_GUTTER_PX = 84;
const NARROW_PX = 560;
/** The address follows once zooming has come to rest. */
const SETTLE_MS = 200;
/** So are data, somewhat earlier. */
const FETCH_MS = 120;

export class Plots {
  private readonly ruler = new Ruler();
  private readonly timeline = new Timeline();
  private readonly tooltip = new Tooltip();
  private readonly crosshair = h("div", { class: "crosshair", hidden: true });
  private readonly selection = h("div", { class: "selection", hidden: true });
  private readonly spoken = h("p", { class: "spoken", role: "status" });
  /** Where the keyboard points: a place on the axis, and a height in the timeline. */
  private cursor: { x: number; py: number } | null = null;
  private readonly more = h("button", {
    type: "button",
    class: "more",
    hidden: true,
    onclick: () => this.change({ allWorkers: !this.state?.allWorkers }, true),
  });
  private readonly picker: TagPicker;
  private readonly charts: Charts;
  private readonly fineMarks: FineMarks;
  private readonly box: HTMLElement;
  readonly element: HTMLElement;
  private readonly resize = new ResizeObserver(() => this.schedule());
  private plot: Plot | null = null;
  private tags: Tag[] = [];
  private state: UrlState | null = null;
  private zoom: View | null = null;
  private theme: Theme | null = null;
  private frame = 0;
  private settle = 0;
  private fetching = 0;
  private geometry = { left: GUTTER_PX, width: 1 };

  constructor(
    run: string,
    private readonly change: (patch: Partial<UrlState>, replace: boolean) => void,
    private readonly openStall: (index: number) => void,
  ) {
    this.picker = new TagPicker(change);
    this.fineMarks = new FineMarks(run, () => this.showMarks());
    this.charts = new Charts(
      run,
      () => this.schedule(),
      (chart) => listen(chart.area, this.gestures(null), false),
      (tag) => change({ tags: this.charts.chosen(this.state?.tags ?? null).filter((name) => name !== tag) }, true),
    );
    const strip = h(
      "div",
      {
        class: "strip",
        tabindex: 0,
        role: "group",
        "aria-label":
          "Timeline. Arrows pan, plus and minus zoom, 0 shows all. Point and comma go to the next and the previous mark, Shift and an arrow move the read-out.",
      },
      this.timeline.element,
      this.more,
    );
    strip.addEventListener("keydown", (event) => {
      if (this.onCursorKey(event) || onKey(event, this.gestures(null))) event.preventDefault();
    });
    strip.addEventListener("blur", () => this.point(null, 0, null, null));
    listen(this.ruler.element, this.gestures(null), true);
    listen(this.timeline.element, this.gestures(this.timeline), false);
    this.box = h(
      "div",
      { class: "plots" },
      this.ruler.element,
      strip,
      this.picker.element,
      this.charts.element,
      this.crosshair,
      this.selection,
      this.spoken,
    );
    this.element = h(
      "section",
      { class: "plots-section", "aria-label": "Timeline and scalars" },
      this.box,
      this.tooltip.element,
    );
    this.resize.observe(this.box);
  }

  get kind(): AxisKind {
    return this.plot?.axis.kind ?? "wall";
  }

  setPlot(plot: Plot): void {
    this.plot = plot;
    this.charts.setPlot(plot);
    this.showMarks();
  }

  private showMarks(): void {
    if (this.plot) this.timeline.setPlot(this.fineMarks.on(this.plot));
    this.schedule();
  }

  setTags(tags: Tag[]): void {
    this.tags = tags;
    this.charts.setTags(tags);
    if (this.state) this.update(this.state);
  }

  update(state: UrlState): void {
    // News must not undo a zoom that is not in the address yet.
    if (!this.state || state.zoom !== this.state.zoom) {
      window.clearTimeout(this.settle);
      this.zoom = state.zoom;
    }
    const sliding = this.state !== null && this.state.smoothing !== state.smoothing;
    this.state = state;
    const workers = this.plot?.workers.length ?? 0;
    this.more.hidden = workers <= FEW;
    setText(this.more, state.allWorkers ? "Fewer workers" : `Show all ${formatCount(workers)} workers`);
    const chosen = this.charts.chosen(state.tags);
    this.charts.show(chosen, { smoothing: state.smoothing, log: state.log });
    this.picker.update(this.tags, chosen, state);
    this.schedule();
    this.fetch(!sliding);
  }

  /** A stretch of this axis on another; null where it is unknown. */
  translate(view: View, to: Axis): View | null {
    const lo = this.plot?.axis.toWall(view.lo) ?? null;
    const hi = this.plot?.axis.toWall(view.hi) ?? null;
    if (lo === null || hi === null) return null;
    const moved = { lo: to.ofWall(lo), hi: to.ofWall(hi) };
    return moved.lo < moved.hi ? moved : null;
  }

  restyle(): void {
    this.theme = null;
    this.schedule();
  }

  /** Draw at once, as wide as paper is; then as before. */
  print(printing: boolean): void {
    this.box.style.width = printing ? `${PAPER_PX}px` : "";
    this.theme = null;
    sharpen(printing ? PAPER_DOTS : 0);
    this.draw();
  }

  /** Zoom about the middle: a factor below 1 shows less. */
  zoomBy(factor: number): void {
    this.setZoom(zoomAt(this.view, this.all, (this.view.lo + this.view.hi) / 2, factor));
  }

  focusSearch(): void {
    this.picker.focus();
  }

  escape(): boolean {
    if (this.picker.escape()) return true;
    if (!this.zoom) return false;
    this.setZoom(null);
    return true;
  }

  close(): void {
    this.resize.disconnect();
    cancelAnimationFrame(this.frame);
    window.clearTimeout(this.settle);
    window.clearTimeout(this.fetching);
    this.fineMarks.close();
    this.charts.close();
  }

  private get all(): View {
    return this.plot?.axis.all ?? { lo: 0, hi: 1 };
  }

  private get view(): View {
    return this.zoom ? clampView(this.zoom, this.all) : this.all;
  }

  private schedule(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private measure(): void {
    const total = this.box.clientWidth;
    const left = total < NARROW_PX ? NARROW_GUTTER_PX : GUTTER_PX;
    this.geometry = { left, width: Math.max(40, total - left - 2) };
  }

  /** Fetch what is looked at; where not at once, when zooming has come to rest. */
  private fetch(atOnce: boolean): void {
    if (!this.box.clientWidth) return;
    this.measure();
    window.clearTimeout(this.fetching);
    const ask = (): void => {
      if (!this.plot) return;
      // A report has nothing finer than the whole.
      const stretch = stretchOf(this.plot.axis, report ? null : this.zoom && this.view);
      this.charts.fetch(stretch, this.geometry.width);
      void this.fineMarks.fetch(this.plot, stretch);
    };
    if (atOnce) ask();
    else this.fetching = window.setTimeout(ask, FETCH_MS);
  }

  private draw(): void {
    if (!this.plot || !this.box.clientWidth) return;
    const before = this.geometry.width;
    this.measure();
    this.theme ??= readTheme(this.box);
    const { left, width } = this.geometry;
    this.box.style.setProperty("--gutter", `${left}px`);
    this.ruler.draw(this.plot.axis, this.view, left, width, this.theme);
    this.timeline.draw(this.view, left, width, this.theme);
    this.charts.draw(this.view, left, width, this.theme);
    if (before !== width) this.fetch(false);
  }

  private setZoom(view: View | null): void {
    this.zoom = view && !isWhole(view, this.all) ? view : null;
    this.tooltip.hide();
    this.schedule();
    this.fetch(false);
    window.clearTimeout(this.settle);
    this.settle = window.setTimeout(() => this.change({ zoom: this.zoom }, true), SETTLE_MS);
  }

  private gestures(hovered: Timeline | null): Gestures {
    return {
      geometry: () => this.geometry,
      view: () => this.view,
      zoomAt: (x, factor) => this.setZoom(zoomAt(this.view, this.all, x, factor)),
      panBy: (share) => this.setZoom(pan(this.view, this.all, share)),
      select: (view) => this.setZoom(clampView(view, this.all)),
      reset: () => this.setZoom(null),
      point: (px, py, event) => this.point(px, py, event, hovered),
      drag: (from, to) => this.showSelection(from, to),
      dragEnd: () => (this.selection.hidden = true),
      click: (px, py) => {
        const stall = hovered?.stallAt(px, py) ?? -1;
        if (stall >= 0) this.openStall(stall);
        else if (hovered) this.showHover(px, py, null, hovered);
      },
    };
  }

  /** Go from mark to mark, or along the axis, with the keyboard. Whether it was such a key. */
  private onCursorKey(event: KeyboardEvent): boolean {
    const { lo, hi } = this.view;
    const right = event.key === "." || event.key === "ArrowRight";
    if (event.key === "." || event.key === ",") {
      const marks = this.timeline.marks();
      const at = this.cursor ?? { x: right ? lo : hi, py: right ? -1 : Infinity };
      const later = (a: { x: number; py: number }, b: { x: number; py: number }): boolean =>
        a.x > b.x || (a.x === b.x && a.py > b.py);
      const next = right ? marks.find((mark) => later(mark, at)) : marks.findLast((mark) => later(at, mark));
      if (next) this.pointAt(next);
      return true;
    }
    if (event.shiftKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
      const x = (this.cursor?.x ?? (lo + hi) / 2) + ((right ? 1 : -1) * (hi - lo)) / 50;
      this.pointAt({ x: Math.min(this.all.hi, Math.max(this.all.lo, x)), py: -1 });
      return true;
    }
    return false;
  }

  private pointAt(at: { x: number; py: number }): void {
    this.cursor = at;
    const { lo, hi } = this.view;
    if (at.x < lo || at.x > hi)
      this.setZoom(clampView({ lo: at.x - (hi - lo) / 2, hi: at.x + (hi - lo) / 2 }, this.all));
    // After the drawing, which says where everything is.
    this.schedule();
    requestAnimationFrame(() => {
      const { left, width } = this.geometry;
      const px = toPixel(at.x, this.view, left, width);
      this.crosshair.hidden = false;
      this.crosshair.style.transform = `translateX(${px}px)`;
      this.charts.point(px);
      const hover = at.py < 0 ? null : this.timeline.hoverAt(px, at.py);
      if (hover) this.showHover(px, at.py, null, this.timeline);
      else this.tooltip.hide();
      setText(this.spoken, hover ? spoken(hover) : this.charts.readouts());
    });
  }

  private point(px: number | null, py: number, event: PointerEvent | null, hovered: Timeline | null): void {
    const { left, width } = this.geometry;
    const inside = px !== null && px >= left && px <= left + width;
    this.crosshair.hidden = !inside;
    this.charts.point(inside ? px : null);
    if (inside) this.crosshair.style.transform = `translateX(${px}px)`;
    if (px === null || !hovered || !event) this.tooltip.hide();
    else this.showHover(px, py, event, hovered);
  }

  private showHover(px: number, py: number, event: PointerEvent | null, hovered: Timeline): void {
    const hover = hovered.hoverAt(px, py);
    hovered.element.classList.toggle("pointing", hovered.stallAt(px, py) >= 0);
    if (!hover) {
      this.tooltip.hide();
      return;
    }
    const box = hovered.element.getBoundingClientRect();
    this.tooltip.show(hover, event?.clientX ?? box.left + px, event?.clientY ?? box.top + py);
  }

  private showSelection(from: number, to: number): void {
    const { left, width } = this.geometry;
    const a = Math.max(left, Math.min(from, to));
    const b = Math.min(left + width, Math.max(from, to));
    this.selection.hidden = false;
    this.selection.style.transform = `translateX(${a}px)`;
    this.selection.style.width = `${Math.max(0, b - a)}px`;
  }
}
