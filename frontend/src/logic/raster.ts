/** Curves as pixels: the price of many dense lines is that of their points, where strokes of them would take several frames. */

/** Where a point lies, in pixels: `left + perX * x`, and `top + perY * y`, of the logarithm of y where `log`. */
export interface Scaling {
  left: number;
  perX: number;
  top: number;
  perY: number;
  log: boolean;
}

/** Of a dashed line: the pixels that are drawn, of those of a period. */
const DASH = 5;
const PERIOD = 8;

/**
 * Put the highest and the lowest place of a line in each column from `first` to `end` into these, one to the right, so that
 * each has neighbours.
 */
export function cover(
  highest: Float64Array,
  lowest: Float64Array,
  xs: Float64Array,
  ys: Float64Array,
  { from, to }: { from: number; to: number },
  { left, perX, top, perY, log }: Scaling,
  first: number,
  end: number,
): void {
  let open = false;
  let x0 = 0;
  let y0 = 0;
  for (let i = from; i < to; i++) {
    const value = ys[i] as number;
    const x = left + perX * (xs[i] as number);
    const y = top + perY * (log ? Math.log10(value) : value);
    if (y - y !== 0 || x - x !== 0) {
      open = false;
      continue;
    }
    const column = Math.floor(x);
    if (!open || column <= Math.floor(x0)) {
      if (column >= first && column < end) {
        if (y < (highest[column + 1] as number)) highest[column + 1] = y;
        if (y > (lowest[column + 1] as number)) lowest[column + 1] = y;
      }
    } else {
      const slope = (y - y0) / (x - x0);
      const begin = Math.floor(x0);
      const last = Math.min(column, end - 1);
      for (let c = Math.max(begin, first); c <= last; c++) {
        const a = c === begin ? y0 : y0 + slope * (c - x0);
        const b = c === column ? y : y0 + slope * (c + 1 - x0);
        const high = Math.min(a, b);
        const low = Math.max(a, b);
        if (high < (highest[c + 1] as number)) highest[c + 1] = high;
        if (low > (lowest[c + 1] as number)) lowest[c + 1] = low;
      }
    }
    open = true;
    x0 = x;
    y0 = y;
  }
}

export class Raster {
  /** Red, green, blue and opacity of each pixel, row by row. */
  readonly bytes: Uint8ClampedArray<ArrayBuffer>;
  readonly #pixels: Uint32Array;
  /** What the present line covers of each column. */
  readonly #highest: Float64Array;
  readonly #lowest: Float64Array;

  constructor(
    readonly width: number,
    readonly height: number,
  ) {
    this.bytes = new Uint8ClampedArray(4 * width * height);
    this.#pixels = new Uint32Array(this.bytes.buffer);
    this.#highest = new Float64Array(width + 2).fill(Infinity);
    this.#lowest = new Float64Array(width + 2).fill(-Infinity);
  }

  clear(): void {
    this.#pixels.fill(0);
  }

  /**
   * Draw a line through points whose xs rise, as far as it is between two columns. A value that is no number, or has no
   * logarithm, is a gap.
   */
  line(
    xs: Float64Array,
    ys: Float64Array,
    range: { from: number; to: number },
    at: Scaling,
    clip: { left: number; right: number },
    [red, green, blue]: readonly [number, number, number],
    thick: number,
    dashed: boolean,
  ): void {
    const first = Math.max(0, clip.left);
    const end = Math.min(this.width, clip.right);
    if (first >= end) return;
    cover(this.#highest, this.#lowest, xs, ys, range, at, first, end);
    const packed = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    // A thick line is thick where it is steep, too.
    const reach = thick > 2 ? 1 : 0;
    for (let column = first; column < end; column++) {
      if (dashed && column % PERIOD >= DASH) continue;
      let high = this.#highest[column + 1] as number;
      let low = this.#lowest[column + 1] as number;
      if (reach) {
        high = Math.min(high, this.#highest[column] as number, this.#highest[column + 2] as number);
        low = Math.max(low, this.#lowest[column] as number, this.#lowest[column + 2] as number);
      }
      if (high <= low) this.#fill(column, high - thick / 2, low + thick / 2, packed);
    }
    this.#highest.fill(Infinity, first + 1, end + 1);
    this.#lowest.fill(-Infinity, first + 1, end + 1);
  }

  /** Colour a part of a column: its ends as far as they are covered. */
  #fill(column: number, high: number, low: number, packed: number): void {
    const pixels = this.#pixels,
      { width, height } = this;
    const top = Math.max(0, high);
    const bottom = Math.min(height, low);
    if (top >= bottom) return;
    const first = Math.floor(top);
    const last = Math.min(height - 1, Math.floor(bottom));
    if (first === last) {
      this.#blend(first * width + column, packed, bottom - top);
      return;
    }
    this.#blend(first * width + column, packed, first + 1 - top);
    const end = last * width + column;
    for (let at = (first + 1) * width + column; at < end; at += width) pixels[at] = packed;
    this.#blend(end, packed, bottom - last);
  }

  #blend(at: number, packed: number, share: number): void {
    const before = this.#pixels[at] as number;
    const under = (before >>> 24) * (1 - share);
    const over = 255 * share;
    const opacity = over + under;
    if (opacity < 1) return;
    const mix = (shift: number): number =>
      Math.round((((packed >>> shift) & 255) * over + ((before >>> shift) & 255) * under) / opacity) << shift;
    this.#pixels[at] = ((Math.round(opacity) << 24) | mix(16) | mix(8) | mix(0)) >>> 0;
  }
}
