/** What is around a chart's lines: the grid, and the values beside it. */
import type { Axis } from "../logic/axis";
import type { View } from "../logic/view";
import { toPixel } from "../logic/view";
import type { YScale } from "../logic/y_scale";
import { yPixel } from "../logic/y_scale";
import type { Box } from "./chart_lines";
import { ticksFor } from "./ruler";
import type { Theme } from "./theme";

export function paintGrid(
  c: CanvasRenderingContext2D,
  axis: Axis,
  view: View,
  scale: YScale,
  box: Box,
  theme: Theme,
): void {
  const { left, top, width, height } = box;
  c.font = theme.font;
  c.textAlign = "right";
  c.textBaseline = "middle";
  c.fillStyle = theme.muted;
  c.strokeStyle = theme.grid;
  c.lineWidth = 1;
  c.beginPath();
  for (const { x } of ticksFor(axis, view, width)) {
    const at = Math.round(toPixel(x, view, left, width)) + 0.5;
    c.moveTo(at, top);
    c.lineTo(at, top + height);
  }
  for (const { y, label } of scale.ticks) {
    const at = Math.round(yPixel(y, scale, top, height)) + 0.5;
    c.moveTo(left, at);
    c.lineTo(left + width, at);
    c.fillText(label, left - 8, at);
  }
  c.stroke();
  c.textAlign = "left";
}
