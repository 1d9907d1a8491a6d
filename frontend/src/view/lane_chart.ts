/** The lanes of all runs over one axis of time: only those in sight are drawn. */
import type { FleetLane, FleetRow, Item } from "../logic/fleet_lanes";
import { itemsIn } from "../logic/fleet_lanes";
import { formatDuration, formatMoment, plural } from "../logic/format";
import { printable } from "../logic/printable";
import { rowAfter, rowAt, scrollToRow, topsOf, visibleRows } from "../logic/rows";
import { clockTicks } from "../logic/ticks";
import type { View } from "../logic/view";
import { fromPixel, toPixel } from "../logic/view";
import { Canvas } from "./canvas";
import { h, setAttribute, setText } from "./element";
import type { Gestures } from "./gestures";
import { listen, onKey } from "./gestures";
import { LANE_PX, LANE_WORDS, paintLane } from "./paint_fleet";
import type { Ticked } from "./ruler";
import { Ruler, ticksFor } from "./ruler";
import type { Theme } from "./theme";
import { readTheme } from "./theme";
import { Zoom } from "./zoom";

/** How near the pointer has to be. */
const NEAR_PX = 5;
const HEADING_PX = 24;
const RIGHT_PX = 12;
const AXIS: Ticked = { kind: "wall", ticks: (view, most) => clockTicks(view, most) };

/** What is drawn. */
export interface LanesShown {
  rows: readonly FleetRow[];
  /** All of the period. */
  whole: View;
  /** The stretch of which it is said what happened. */
  stretch: View | null;
  /** When runs had an incident together. */
  bands: readonly number[];
}

export interface LaneEvents {
  /** Another stretch is shown; null: all of the period. */
  settled(zoom: View | null): void;
  select(view: View): void;
  /** Open a run at a moment, or at something in its lane. */
  open(lane: FleetLane, at: { since: number; until: number } | null): void;
  /** Show the healthy runs of a group, or fold them away. */
  fold(group: string): void;
}

export class LaneChart {
  readonly #canvas = new Canvas("lanes-canvas");
  readonly #ruler = new Ruler();
  readonly #spacer = h("div", { class: "lanes-spacer", "aria-hidden": "true" }, this.#canvas.element);
  readonly #option = h("div", { id: "lane-active", role: "option", class: "spoken", "aria-selected": "true" });
  readonly #scroller = h(
    "div",
    { class: "lanes", role: "listbox", tabindex: 0, "aria-label": "Runs over time" },
    this.#option,
    this.#spacer,
  );
  readonly zoom: Zoom;
  readonly element: HTMLElement;
  readonly #gestures: Gestures;
  #shown: LanesShown = { rows: [], whole: { lo: 0, hi: 1 }, stretch: null, bands: [] };
  #tops = topsOf([]);
  #active = 0;
  #theme: Theme | null = null;
  #frame = 0;

  constructor(private readonly events: LaneEvents) {
    this.zoom = new Zoom({
      all: () => this.#shown.whole,
      geometry: () => this.#geometry(),
      changed: () => this.#schedule(),
      settled: (zoom) => events.settled(zoom),
    });
    this.#gestures = {
      ...this.zoom.gestures(
        (px, py) => this.#point(px, py),
        (px, py) => this.#click(px, py),
      ),
      select: (view) => events.select(view),
    };
    this.element = h("div", { class: "lane-chart" }, this.#ruler.element, this.#scroller, this.zoom.selection);
    this.#scroller.addEventListener("scroll", () => this.#schedule(), { passive: true });
    this.#scroller.addEventListener("keydown", (event) => this.#onKey(event));
    new ResizeObserver(() => this.#schedule()).observe(this.#scroller);
    listen(this.#canvas.element, { ...this.#gestures, reset: () => {} }, false); // two clicks have opened a run
  }

  update(shown: LanesShown, zoom: View | null): void {
    const run = this.#shown.rows[this.#active]?.lane?.run;
    if (shown.rows !== this.#shown.rows) {
      this.#tops = topsOf(shown.rows.map(({ lane }) => (lane ? LANE_PX : HEADING_PX)));
      this.#spacer.style.height = `${this.#tops.at(-1)}px`;
      this.#active = Math.max(
        0,
        shown.rows.findIndex(({ lane }) => lane && lane.run === run),
      );
    }
    this.#shown = shown;
    this.zoom.adopt(zoom);
    this.#say();
    this.#schedule();
  }

  restyle(): void {
    this.#theme = null;
    this.#draw();
  }

  focus(): void {
    this.#scroller.focus({ preventScroll: true });
  }

  /** Bring a moment of a run into sight, and mark it. */
  reveal(at: number, run: string | undefined): void {
    this.#shown.bands = [at];
    this.zoom.reveal(at);
    const index = this.#shown.rows.findIndex(({ lane }) => lane && lane.run === run);
    this.#activate(index < 0 ? this.#active : index);
  }

  close(): void {
    this.zoom.close();
  }

  #geometry(): { left: number; width: number } {
    const all = this.#scroller.clientWidth;
    const left = Math.round(Math.min(240, all * 0.3));
    return { left, width: Math.max(1, all - left - RIGHT_PX) };
  }

  #schedule(): void {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw(): void {
    const { rows, whole, stretch, bands } = this.#shown;
    const { view } = this.zoom;
    const { clientHeight: tall, scrollTop: top } = this.#scroller;
    if (!tall || whole.hi <= 1) return;
    this.#theme ??= readTheme(this.element);
    const theme = this.#theme;
    const { left, width } = this.#geometry();
    this.#ruler.draw(AXIS, view, left, width, theme);
    const c = this.#canvas.begin(left + width + RIGHT_PX, tall);
    c.font = theme.font;
    c.textBaseline = "middle";
    /** A stretch of time over all lanes. */
    const fill = (lo: number, hi: number, colour: string, opacity: number): void => {
      const a = Math.max(left, toPixel(lo, view, left, width));
      const b = Math.min(left + width, toPixel(hi, view, left, width));
      if (b < a) return;
      c.globalAlpha = opacity;
      c.fillStyle = colour;
      c.fillRect(Math.round(a), 0, Math.max(1, b - a), tall);
      c.globalAlpha = 1;
    };
    for (const { x } of ticksFor(AXIS, view, width)) fill(x, x, theme.grid, 1);
    for (const at of bands) fill(at, at, theme.tone.bad, 0.4);
    if (stretch) fill(stretch.lo, stretch.hi, theme.accent, 0.14);
    const focused = document.activeElement === this.#scroller;
    const slice = visibleRows(top, tall, this.#tops, 0);
    for (let i = slice.first; i < slice.end; i++) {
      const { lane, text } = rows[i] as FleetRow;
      const y = (this.#tops[i] as number) - top;
      const high = lane ? LANE_PX : HEADING_PX;
      if (focused && i === this.#active) {
        c.fillStyle = theme.grid;
        c.fillRect(0, y, left + width, high);
      }
      c.fillStyle = lane?.needsYou ? theme.tone.bad : theme.text;
      c.textAlign = lane ? "right" : "left"; // names that differ do so at their ends
      c.fillText(printable(text), lane ? left - 10 : 8, y + high / 2);
      if (lane) paintLane(c, itemsIn(lane, view), y + high / 2, view, left, width, theme);
    }
  }

  #rowOf(py: number): number {
    const y = py + this.#scroller.scrollTop;
    return y < (this.#tops.at(-1) as number) ? rowAt(this.#tops, y) : -1;
  }

  /** What of a lane is at a place: the last that is drawn there. */
  #itemAt(lane: FleetLane, px: number): Item | undefined {
    const { left, width } = this.#geometry();
    const at = (x: number): number => fromPixel(x, this.zoom.view, left, width);
    return px < left ? undefined : itemsIn(lane, { lo: at(px - NEAR_PX), hi: at(px + NEAR_PX) }).at(-1);
  }

  #point(px: number | null, py: number): void {
    const row = px === null ? undefined : this.#shown.rows[this.#rowOf(py)];
    this.#canvas.element.classList.toggle("pointing", row !== undefined);
    const item = px !== null && row?.lane && this.#itemAt(row.lane, px);
    const words = item
      ? [
          LANE_WORDS[item.kind][2],
          formatMoment(item.since),
          item.until > item.since && formatDuration(item.until - item.since),
        ]
      : [];
    setAttribute(this.#canvas.element, "title", [row?.text, ...words, row?.lane?.host].filter(Boolean).join(", "));
  }

  #click(px: number, py: number): void {
    const { left, width } = this.#geometry();
    const at = fromPixel(px, this.zoom.view, left, width);
    const index = this.#rowOf(py);
    const lane = this.#shown.rows[index]?.lane;
    const item = lane && this.#itemAt(lane, px);
    // A session lasts for days: what is looked for is the moment.
    const moment = px < left ? null : { since: at, until: at };
    this.#enter(index, item && item.kind !== "session" ? item : moment);
  }

  /** Open a row: a run at a moment, or the healthy runs of a group. */
  #enter(index: number, at: { since: number; until: number } | null): void {
    const row = this.#shown.rows[index];
    if (row) this.#active = index;
    if (row?.lane) this.events.open(row.lane, at);
    else if (row?.fold != null) this.events.fold(row.fold);
  }

  #onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { rows } = this.#shown;
    const row = rowAfter(event.key, this.#active, this.#tops, this.#scroller.clientHeight);
    if (row !== null) this.#activate(row);
    else if (event.key === "Enter" || event.key === " ") {
      const lane = rows[this.#active]?.lane;
      const last = lane && itemsIn(lane, this.zoom.view).findLast(({ kind }) => /bad|warn/.test(LANE_WORDS[kind][1]));
      this.#enter(this.#active, last ?? null);
    } else if (!onKey(event, this.#gestures)) return;
    event.preventDefault();
  }

  #activate(index: number): void {
    this.#active = Math.max(0, Math.min(this.#shown.rows.length - 1, index));
    const { scrollTop, clientHeight } = this.#scroller;
    this.#scroller.scrollTop = scrollToRow(this.#active, scrollTop, clientHeight, this.#tops) ?? scrollTop;
    this.#say();
    this.#schedule();
  }

  /** The row that the keyboard is on, in words. */
  #say(): void {
    const row = this.#shown.rows[this.#active];
    setAttribute(this.#scroller, "aria-activedescendant", row ? "lane-active" : null);
    this.#option.hidden = !row;
    setText(this.#option, row ? `${row.text}${row.lane ? `: ${plural(row.lane.incidents, "incident")}` : ""}` : "");
  }
}
