/** A canvas as sharp as the screen, and the few shapes that are drawn on it. */
import { printable } from "../logic/printable";

let leastDots = 0;

/** From now on draw at least this number of dots for a CSS pixel. */
export function sharpen(dots: number): void {
  leastDots = dots;
}

export class Canvas {
  readonly element: HTMLCanvasElement;
  readonly context: CanvasRenderingContext2D;
  width = 0;
  height = 0;
  /** Dots for a CSS pixel. */
  ratio = 1;

  constructor(name: string) {
    this.element = document.createElement("canvas");
    this.element.className = name;
    this.context = this.element.getContext("2d") as CanvasRenderingContext2D;
  }

  /** Clear it for drawing, in a size of CSS pixels. */
  begin(width: number, height: number): CanvasRenderingContext2D {
    const ratio = Math.max(leastDots, window.devicePixelRatio || 1);
    this.ratio = ratio;
    const w = Math.max(1, Math.round(width * ratio));
    const h = Math.max(1, Math.round(height * ratio));
    if (this.element.width !== w || this.element.height !== h || this.width !== width || this.height !== height) {
      this.element.width = w;
      this.element.height = h;
      this.element.style.width = `${width}px`;
      this.element.style.height = `${height}px`;
    }
    this.width = width;
    this.height = height;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    return this.context;
  }
}

/** Slanted lines over a stretch: what was lost is hatched as well as coloured. */
export function hatch(
  c: CanvasRenderingContext2D,
  x: number,
  y: number,
  w: number,
  h: number,
  colour: string,
  gap = 5,
): void {
  if (w <= 0) return;
  c.save();
  c.beginPath();
  c.rect(x, y, w, h);
  c.clip();
  c.strokeStyle = colour;
  c.lineWidth = 1;
  c.beginPath();
  for (let at = Math.floor((x - h) / gap) * gap; at < x + w; at += gap) {
    c.moveTo(at, y + h);
    c.lineTo(at + h, y);
  }
  c.stroke();
  c.restore();
}

/** Text of others, which ends in an ellipsis where it does not fit: what is to be drawn. */
export function fitText(c: CanvasRenderingContext2D, whole: string, width: number): string {
  const text = printable(whole);
  if (c.measureText(text).width <= width) return text;
  let lo = 0;
  let hi = text.length;
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (c.measureText(`${text.slice(0, mid)}…`).width <= width) lo = mid;
    else hi = mid - 1;
  }
  return lo > 0 ? `${text.slice(0, lo)}…` : "";
}

export function diamond(c: CanvasRenderingContext2D, x: number, y: number, r: number): void {
  c.beginPath();
  c.moveTo(x, y - r);
  c.lineTo(x + r, y);
  c.lineTo(x, y + r);
  c.lineTo(x - r, y);
  c.closePath();
}

export function cross(c: CanvasRenderingContext2D, x: number, y: number, r: number): void {
  c.beginPath();
  c.moveTo(x - r, y - r);
  c.lineTo(x + r, y + r);
  c.moveTo(x + r, y - r);
  c.lineTo(x - r, y + r);
}
