/** The stretch of an axis that is shown: changed by pointer, wheel and keys; the address follows once it has come to rest. */
import type { View } from "../logic/view";
import { clampView, isWhole, pan, zoomAt } from "../logic/view";
import { h, iconButton } from "./element";
import type { Gestures } from "./gestures";

const SETTLE_MS = 200;

export interface Zoomed {
  /** All of the axis. */
  all(): View;
  /** Where the axis is drawn, in pixels from the left. */
  geometry(): { left: number; width: number };
  /** Another stretch is shown. */
  changed(): void;
  /** It has come to rest; null: all. */
  settled(zoom: View | null): void;
}

export class Zoom {
  /** What is being dragged over. */
  readonly selection = h("div", { class: "selection", hidden: true });
  /** The stretch; null for all, new events included. */
  stretch: View | null = null;
  #settle = 0;

  constructor(private readonly of: Zoomed) {}

  get view(): View {
    return this.stretch ? clampView(this.stretch, this.of.all()) : this.of.all();
  }

  /** What the address says: what had not come to rest is over. */
  adopt(stretch: View | null): void {
    window.clearTimeout(this.#settle);
    this.stretch = stretch;
  }

  set(view: View | null): void {
    this.stretch = view && !isWhole(view, this.of.all()) ? view : null;
    this.of.changed();
    window.clearTimeout(this.#settle);
    this.#settle = window.setTimeout(() => this.of.settled(this.stretch), SETTLE_MS);
  }

  /** Zoom about the middle: a factor below 1 shows less. */
  by(factor: number): void {
    this.set(zoomAt(this.view, this.of.all(), (this.view.lo + this.view.hi) / 2, factor));
  }

  /** Show a place that is out of sight in the middle. */
  reveal(x: number): void {
    const { lo, hi } = this.view;
    if (x < lo || x > hi) this.set(clampView({ lo: x - (hi - lo) / 2, hi: x + (hi - lo) / 2 }, this.of.all()));
  }

  /** Show all; whether less was shown. */
  reset(): boolean {
    const zoomed = this.stretch !== null;
    if (zoomed) this.set(null);
    return zoomed;
  }

  gestures(point: Gestures["point"], click: Gestures["click"]): Gestures {
    return {
      geometry: () => this.of.geometry(),
      view: () => this.view,
      zoomAt: (x, factor) => this.set(zoomAt(this.view, this.of.all(), x, factor)),
      panBy: (share) => this.set(pan(this.view, this.of.all(), share)),
      select: (view) => this.set(clampView(view, this.of.all())),
      reset: () => this.set(null),
      point,
      drag: (from, to) => this.#showSelection(from, to),
      dragEnd: () => (this.selection.hidden = true),
      click,
    };
  }

  close(): void {
    window.clearTimeout(this.#settle);
  }

  #showSelection(from: number, to: number): void {
    const { left, width } = this.of.geometry();
    const a = Math.max(left, Math.min(from, to));
    const b = Math.min(left + width, Math.max(from, to));
    this.selection.hidden = false;
    this.selection.style.transform = `translateX(${a}px)`;
    this.selection.style.width = `${Math.max(0, b - a)}px`;
  }
}

/** Shows all; pressable while less is shown. */
export const wholeButton = (onclick: () => void): HTMLButtonElement =>
  h("button", { title: "Show all of it (0, or double click)", onclick }, "Reset zoom");

/** For who has neither wheel nor keys. */
export function zoomButtons(by: (factor: number) => void): HTMLElement[] {
  const button = (sign: string, name: string, factor: number): HTMLElement =>
    iconButton(sign, name, name, () => by(factor));
  return [button("+", "Zoom in", 0.5), button("−", "Zoom out", 2)];
}
