/** What all that is drawn over one axis shares: its stretch and width, the crosshair, one drawing in a frame. */
import type { View } from "../logic/view";
import { fromPixel, toPixel } from "../logic/view";
import { sharpen } from "./canvas";
import { h } from "./element";
import { PAPER_DOTS, PAPER_PX } from "./print";
import type { Theme } from "./theme";
import { readTheme } from "./theme";
import { Zoom } from "./zoom";

/** Data are asked for when zooming has come to rest, somewhat before the address says so. */
const FETCH_MS = 120;

export interface Framed {
  /** All of the axis. */
  all(): View;
  /** How wide the names and values beside the axis are, in pixels, of a total width. */
  gutter(total: number): number;
  /** `printing`: also what is not in sight. */
  draw(theme: Theme, printing: boolean): void;
  /** Fetch what is looked at. */
  fetch(): void;
  /** Another stretch is shown. */
  zoomed(): void;
  /** It has come to rest; null: all. */
  settled(zoom: View | null): void;
}

export class AxisFrame {
  readonly #crosshair = h("div", { class: "crosshair", hidden: true });
  readonly element = h("div", { class: "plots" });
  readonly zoom: Zoom;
  /** Where the axis is drawn, in pixels. */
  geometry = { left: 0, width: 1 };
  readonly #resize = new ResizeObserver(() => this.schedule());
  #theme: Theme | null = null;
  #frame = 0;
  #fetching = 0;

  constructor(private readonly of: Framed) {
    this.zoom = new Zoom({
      all: () => of.all(),
      geometry: () => this.geometry,
      changed: () => {
        of.zoomed();
        this.schedule();
        this.fetch(false);
      },
      settled: (zoom) => of.settled(zoom),
    });
    this.#resize.observe(this.element);
  }

  /** Put in what is drawn, from the top. */
  hold(...parts: HTMLElement[]): void {
    this.element.append(...parts, this.#crosshair, this.zoom.selection);
  }

  schedule(): void {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw(false);
    });
  }

  /** Fetch what is looked at; where not at once, when zooming has come to rest. */
  fetch(atOnce: boolean): void {
    window.clearTimeout(this.#fetching);
    const ask = (): void => {
      if (!this.element.clientWidth) return;
      this.#measure();
      this.of.fetch();
    };
    if (atOnce) ask();
    else this.#fetching = window.setTimeout(ask, FETCH_MS);
  }

  restyle(): void {
    this.#theme = null;
    this.schedule();
  }

  /** Draw at once, as wide as paper is; then as before. */
  print(printing: boolean): void {
    this.element.style.width = printing ? `${PAPER_PX}px` : "";
    this.#theme = null;
    sharpen(printing ? PAPER_DOTS : 0);
    this.#draw(printing);
  }

  /** Where a place of the axis is drawn. */
  pixelOf(x: number): number {
    return toPixel(x, this.zoom.view, this.geometry.left, this.geometry.width);
  }

  /** The place of the axis that is drawn at a pixel. */
  placeOf(px: number): number {
    return fromPixel(px, this.zoom.view, this.geometry.left, this.geometry.width);
  }

  /** Put the crosshair at a pixel, where that is on the axis; whether it is. */
  point(px: number | null): boolean {
    const { left, width } = this.geometry;
    const inside = px !== null && px >= left && px <= left + width;
    this.#crosshair.hidden = !inside;
    if (inside) this.#crosshair.style.transform = `translateX(${px}px)`;
    return inside;
  }

  /** Where Shift and an arrow move a cursor; null for other keys. */
  moved(event: KeyboardEvent, cursor: number | null): number | null {
    if (!event.shiftKey || (event.key !== "ArrowLeft" && event.key !== "ArrowRight")) return null;
    const { lo, hi } = this.zoom.view;
    const all = this.of.all();
    const by = ((event.key === "ArrowRight" ? 1 : -1) * (hi - lo)) / 50;
    const x = Math.min(all.hi, Math.max(all.lo, (cursor ?? (lo + hi) / 2) + by));
    this.zoom.reveal(x);
    return x;
  }

  close(): void {
    this.#resize.disconnect();
    cancelAnimationFrame(this.#frame);
    window.clearTimeout(this.#fetching);
    this.zoom.close();
  }

  #measure(): void {
    const total = this.element.clientWidth;
    const left = this.of.gutter(total);
    this.geometry = { left, width: Math.max(40, total - left - 2) };
  }

  #draw(printing: boolean): void {
    if (!this.element.clientWidth) return;
    const before = this.geometry.width;
    this.#measure();
    this.#theme ??= readTheme(this.element);
    this.element.style.setProperty("--gutter", `${this.geometry.left}px`);
    this.of.draw(this.#theme, printing);
    if (before !== this.geometry.width) this.fetch(false);
  }
}
