import assert from "node:assert/strict";
import test from "node:test";
import type { Line } from "../src/logic/segments";
import type { LineStyle } from "../src/view/chart_lines";
import { drawPieces } from "../src/view/chart_lines";

const BOX = { left: 50, top: 10, width: 1000, height: 140 };
const VIEW = { lo: 0, hi: 20_000 };
const STYLE: LineStyle = { kept: "blue", abandoned: "red", odd: "black", width: 1.75, withRaw: true };

type Rect = [x: number, y: number, width: number, height: number];

/** A canvas's context that keeps what is drawn in columns, and counts the lines. */
class Recorder {
  rects: Rect[] = [];
  strokes = 0;
  save(): void {}
  restore(): void {}
  beginPath(): void {}
  rect(): void {}
  clip(): void {}
  setLineDash(): void {}
  moveTo(): void {}
  lineTo(): void {}
  arc(): void {}
  fill(): void {}
  stroke(): void {
    this.strokes++;
  }
  fillRect(...rect: Rect): void {
    this.rects.push(rect);
  }
}

function drawn(values: (i: number) => number, log = false): Recorder {
  const xs = Float64Array.from({ length: 20_000 }, (_, i) => i);
  const shown = xs.map((_, i) => values(i));
  const line = { abandoned: false, segment: 0, xs, raw: shown, shown, step: xs, wall: xs } satisfies Line;
  const recorder = new Recorder();
  drawPieces(
    recorder as unknown as CanvasRenderingContext2D,
    [{ lines: [line], lo: -Infinity, hi: Infinity }],
    VIEW,
    { lo: log ? 0.1 : -1, hi: 10, log, ticks: [] },
    BOX,
    STYLE,
  );
  return recorder;
}

const zigzag = (i: number): number => (i % 2 ? 9 : 1);
const columns = (rects: Rect[]): Set<number> => new Set(rects.map(([x]) => x - BOX.left));

test("a dense line is drawn in columns, each from its lowest point to its highest", () => {
  const { rects, strokes } = drawn(zigzag);
  assert.deepEqual([strokes, columns(rects).size], [0, 1000]);
  for (const [x, y, width, height] of rects) {
    assert.ok(x >= BOX.left && x < BOX.left + BOX.width && width === 1);
    assert.ok(Math.abs(height - (8 / 11) * BOX.height - 1.75) < 1e-6 && y >= BOX.top, `${x}: ${y} ${height}`);
  }
});

test("a gap in a dense line stays a gap", () => {
  // Twenty points to a pixel: what is no number leaves the columns from 450 to 549 empty, and nothing crosses them.
  for (const nothing of [NaN, Infinity]) {
    const found = columns(drawn((i) => (i >= 9000 && i < 11_000 ? nothing : zigzag(i))).rects);
    for (let x = 0; x < BOX.width; x++) assert.equal(found.has(x), x < 450 || x >= 550, `column ${x}`);
  }
  const log = columns(drawn((i) => (i >= 9000 && i < 11_000 ? -1 : zigzag(i)), true).rects);
  assert.deepEqual([log.has(449), log.has(450), log.has(549), log.has(550)], [true, false, false, true]);
});

test("a dense line crosses stretches without points, as a stroke would", () => {
  const xs = Float64Array.from([...Array(10_000).keys()].map((i) => (i < 5000 ? i : i + 10_000)));
  const shown = xs.map((_, i) => zigzag(i));
  const recorder = new Recorder();
  const line = { abandoned: false, segment: 0, xs, raw: shown, shown, step: xs, wall: xs } satisfies Line;
  drawPieces(
    recorder as unknown as CanvasRenderingContext2D,
    [{ lines: [line], lo: -Infinity, hi: Infinity }],
    VIEW,
    { lo: -1, hi: 10, log: false, ticks: [] },
    BOX,
    STYLE,
  );
  assert.equal(columns(recorder.rects).size, 1000);
  const across = recorder.rects.filter(([x]) => x - BOX.left > 260 && x - BOX.left < 740);
  assert.ok(
    across.every(([, , , height]) => height < 3),
    "a straight line",
  );
});
