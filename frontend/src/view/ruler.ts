/** The axis with its ticks: stays in sight while the page scrolls. */
import type { Axis } from "../logic/axis";
import { zoneOf } from "../logic/format";
import type { Tick } from "../logic/ticks";
import type { View } from "../logic/view";
import { toPixel } from "../logic/view";
import { Canvas } from "./canvas";
import { h } from "./element";
import type { Theme } from "./theme";

export const RULER_PX = 24;
const TICK_ROOM_PX = 96;

/** What of an axis a ruler shows. */
export type Ticked = Pick<Axis, "kind" | "ticks">;

/** As many ticks as can be read. */
export function ticksFor(axis: Ticked, view: View, width: number): Tick[] {
  return axis.ticks(view, Math.max(2, Math.floor(width / TICK_ROOM_PX)));
}

export class Ruler {
  readonly #canvas = new Canvas("ruler-canvas");
  readonly element = h("div", { class: "ruler", "aria-hidden": "true" }, this.#canvas.element);

  draw(axis: Ticked, view: View, left: number, width: number, theme: Theme): void {
    paintRuler(this.#canvas.begin(left + width + 1, RULER_PX), axis, view, left, width, theme, RULER_PX, true);
  }
}

/** Ticks with what is written at them, along a line at `y`: above it, or below it. */
export function paintRuler(
  c: CanvasRenderingContext2D,
  axis: Ticked,
  view: View,
  left: number,
  width: number,
  theme: Theme,
  y: number,
  above: boolean,
): void {
  const up = above ? -1 : 1;
  const line = y + up * 0.5;
  const middle = y + up * (RULER_PX / 2 + 2);
  c.font = theme.font;
  c.textBaseline = "middle";
  c.strokeStyle = theme.border;
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(left, line);
  c.lineTo(left + width, line);
  let free = left;
  for (const tick of ticksFor(axis, view, width)) {
    const x = Math.round(toPixel(tick.x, view, left, width)) + 0.5;
    c.moveTo(x, y + up * 6);
    c.lineTo(x, y);
    const size = c.measureText(tick.label).width;
    const start = Math.max(left, Math.min(x - size / 2, left + width - size));
    if (start < free) continue;
    c.fillStyle = tick.strong ? theme.text : theme.muted;
    c.fillText(tick.label, start, middle);
    free = start + size + 10;
  }
  c.stroke();
  c.fillStyle = theme.muted;
  const unit = axis.kind === "step" ? "step" : axis.kind === "relative" ? "running for" : `local, ${zoneOf(view.lo)}`;
  const room = c.measureText(unit).width;
  if (room < left - 10) c.fillText(unit, left - 10 - room, middle);
}
