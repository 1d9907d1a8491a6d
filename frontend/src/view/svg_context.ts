/** A drawing context that writes SVG: what draws on a canvas draws into a file. It has what our charts use. */
import { printable } from "../logic/printable";

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&apos;",
};
const escaped = (text: string): string => text.replace(/[&<>"']/g, (sign) => ENTITIES[sign] as string);
const round = (x: number): number => Math.round(x * 100) / 100;
const ANCHORS: Readonly<Record<string, string>> = { right: "end", center: "middle" };

export class SvgContext {
  font = "";
  fillStyle = "";
  strokeStyle = "";
  lineWidth = 1;
  lineJoin = "miter";
  globalAlpha = 1;
  textAlign = "left";
  textBaseline = "middle";
  readonly #written: string[] = [];
  #path = "";
  #dash = "";
  /** Groups that were opened since each `save`. */
  readonly #open: number[] = [];
  #clips = 0;

  /** `measuring`: a canvas's context, which knows how wide text is. */
  constructor(private readonly measuring: CanvasRenderingContext2D) {}

  /** All of it, as a file. */
  text(width: number, height: number): string {
    const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${this.#written.join("")}</svg>\n`;
  }

  save(): void {
    this.#open.push(0);
  }

  restore(): void {
    this.#written.push("</g>".repeat(this.#open.pop() ?? 0));
  }

  clip(): void {
    const id = `clip${this.#clips++}`;
    this.#written.push(`<clipPath id="${id}"><path d="${this.#path}"/></clipPath><g clip-path="url(#${id})">`);
    this.#open.push((this.#open.pop() ?? 0) + 1);
  }

  beginPath(): void {
    this.#path = "";
  }

  moveTo(x: number, y: number): void {
    this.#path += `M${round(x)} ${round(y)}`;
  }

  lineTo(x: number, y: number): void {
    this.#path += `L${round(x)} ${round(y)}`;
  }

  rect(x: number, y: number, width: number, height: number): void {
    this.#path += `M${round(x)} ${round(y)}h${round(width)}v${round(height)}h${round(-width)}z`;
  }

  /** Always a whole circle. */
  arc(x: number, y: number, r: number): void {
    this.#path += `M${round(x - r)} ${round(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
  }

  setLineDash(dash: readonly number[]): void {
    this.#dash = dash.join(" ");
  }

  stroke(): void {
    const how = `stroke-width="${this.lineWidth}" stroke-linejoin="${this.lineJoin}"`;
    const dash = this.#dash && ` stroke-dasharray="${this.#dash}"`;
    this.#draw(`fill="none" stroke="${this.strokeStyle}" stroke-opacity="${this.globalAlpha}" ${how}${dash}`);
  }

  fill(): void {
    this.#draw(`fill="${this.fillStyle}" fill-opacity="${this.globalAlpha}"`);
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    this.beginPath();
    this.rect(x, y, width, height);
    this.fill();
  }

  fillText(text: string, x: number, y: number): void {
    const how = `text-anchor="${ANCHORS[this.textAlign] ?? "start"}" dominant-baseline="central"`;
    const style = `font: ${escaped(this.font)}`;
    this.#written.push(
      `<text x="${round(x)}" y="${round(y)}" fill="${this.fillStyle}" ${how} style="${style}">${escaped(printable(text))}</text>`,
    );
  }

  measureText(text: string): TextMetrics {
    this.measuring.font = this.font;
    return this.measuring.measureText(text);
  }

  #draw(how: string): void {
    if (this.#path) this.#written.push(`<path d="${this.#path}" ${how}/>`);
  }
}
