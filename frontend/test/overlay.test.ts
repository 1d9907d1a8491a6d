import assert from "node:assert/strict";
import test from "node:test";
import { nearestPoint, shownOf } from "../src/logic/layers";
import { difference, lastReading, overlayAxis, placing, readingAt, shortNames, spanOf } from "../src/logic/overlay";
import type { Scaling } from "../src/logic/raster";
import { Raster } from "../src/logic/raster";
import { linesOf } from "../src/logic/segments";
import { scalars, T0 } from "./builders";

const RED = [255, 0, 0] as const;
const BLUE = [0, 0, 255] as const;
const AT: Scaling = { left: 0, perX: 1, top: 20, perY: -1, log: false };
const EVERYWHERE = { left: 0, right: 1000 };

/** The rows that are coloured in a column, each with its opacity. */
function column(raster: Raster, x: number): Map<number, number> {
  const found = new Map<number, number>();
  for (let y = 0; y < raster.height; y++) {
    const opacity = raster.bytes[4 * (y * raster.width + x) + 3] as number;
    if (opacity) found.set(y, opacity);
  }
  return found;
}

function drawn(
  xs: number[],
  ys: number[],
  how: { thick?: number; dashed?: boolean; clip?: typeof EVERYWHERE; at?: Scaling } = {},
): Raster {
  const raster = new Raster(30, 20);
  const range = { from: 0, to: xs.length };
  const { thick = 1, dashed = false, clip = EVERYWHERE, at = AT } = how;
  raster.line(Float64Array.from(xs), Float64Array.from(ys), range, at, clip, RED, thick, dashed);
  return raster;
}

const columnsOf = (raster: Raster): number[] =>
  Array.from({ length: raster.width }, (_, x) => x).filter((x) => column(raster, x).size);

test("a line of pixels covers each column from its lowest point to its highest", () => {
  const many = Array.from({ length: 400 }, (_, i) => i / 20);
  const raster = drawn(
    many,
    many.map((_, i) => (i % 2 ? 15.5 : 4.5)),
  );
  assert.deepEqual(
    columnsOf(raster),
    Array.from({ length: 20 }, (_, x) => x),
  );
  // From 20 - 15.5 to 20 - 4.5, and half a pixel more at both ends.
  for (let x = 0; x < 20; x++)
    assert.deepEqual(
      [...column(raster, x)],
      Array.from({ length: 12 }, (_, i) => [4 + i, 255]),
    );
});

test("a level line between two rows of pixels is half in each", () => {
  const rows = column(drawn([0, 29], [10, 10]), 12);
  assert.deepEqual(
    [...rows],
    [
      [9, 128],
      [10, 128],
    ],
  );
});

test("a sparse line is straight between its points, also where these are out of sight", () => {
  const raster = drawn([-1000, 1000], [10 - 1000, 10 + 1000]);
  assert.deepEqual(
    columnsOf(raster),
    Array.from({ length: 11 }, (_, x) => x),
  );
  for (let x = 0; x < 9; x++) assert.ok(column(raster, x).has(9 - x), `column ${x}`);
});

test("what is no number is a gap, and so is what has no logarithm", () => {
  for (const nothing of [NaN, Infinity, -Infinity])
    assert.deepEqual(columnsOf(drawn([2, 4, 6, 8, 10], [5, 5, nothing, 5, 5])), [2, 3, 4, 8, 9, 10]);
  const log = { ...AT, log: true };
  assert.deepEqual(columnsOf(drawn([2, 4, 6, 8, 10], [5, 5, -5, 5, 5], { at: log })), [2, 3, 4, 8, 9, 10]);
  assert.deepEqual(columnsOf(drawn([2, 4, 6], [5, 5, 0], { at: log })), [2, 3, 4]);
});

test("a line is cut at the ends of its piece, and dashed where it was abandoned", () => {
  assert.deepEqual(columnsOf(drawn([0, 29], [5, 5], { clip: { left: 7, right: 9 } })), [7, 8]);
  assert.deepEqual(columnsOf(drawn([0, 18], [5, 5], { dashed: true })), [0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 16, 17, 18]);
});

test("the line that is drawn last is on top, and nothing of one is left for the next", () => {
  const raster = drawn([0, 29], [10.5, 10.5]);
  raster.line(Float64Array.of(0, 4), Float64Array.of(10.5, 10.5), { from: 0, to: 2 }, AT, EVERYWHERE, BLUE, 1, false);
  const colour = (x: number): number[] => [...raster.bytes.slice(4 * (9 * 30 + x), 4 * (9 * 30 + x) + 4)];
  assert.deepEqual(
    [colour(2), colour(20)],
    [
      [...BLUE, 255],
      [...RED, 255],
    ],
  );
  raster.clear();
  assert.deepEqual(columnsOf(raster), []);
});

test("a thick line is thick where it is steep", () => {
  const steep = (thick: number): number => columnsOf(drawn([10.2, 10.8], [2, 18], { thick })).length;
  assert.deepEqual([steep(1.5), steep(3)], [1, 3]);
});

/** Two sessions: the second began again at step 20. */
const found = scalars(
  [
    { session: "s1", abandoned_after_step: 20 },
    { session: "s2", abandoned_after_step: null },
  ],
  [
    [T0 + 1, 10, 3, 0],
    [T0 + 2, 20, 2, 0],
    [T0 + 3, 30, 9, 0],
    [T0 + 50, 30, 1, 1],
    [T0 + 51, 40, 0.5, 1],
  ],
);
found.columns.running = Float64Array.of(1, 2, 3, 5, 6);
const layerOn = (kind: "step" | "relative" | "wall") => ({
  scalars: found,
  lines: linesOf(found, placing(kind, found) ?? (() => NaN)),
});

test("running time is the backend's, wall time is a moment, a moment of 0 is not known", () => {
  const places = (kind: "step" | "relative" | "wall"): number[][] => layerOn(kind).lines.map(({ xs }) => [...xs]);
  assert.deepEqual(places("relative"), [
    [1, 2],
    [2, 3],
    [5, 6],
  ]);
  assert.deepEqual(places("step"), [
    [10, 20],
    [20, 30],
    [30, 40],
  ]);
  assert.equal(places("wall")[2]?.[0], T0 + 50);
  assert.ok(Number.isNaN(placing("wall", found)?.(0, 5, 0, 0)));
  const { running: _, ...columns } = found.columns;
  assert.equal(placing("relative", { ...found, columns }), null);
  assert.deepEqual(spanOf(layerOn("relative").lines, null), { lo: 1, hi: 6 });
  assert.deepEqual(overlayAxis("step", null).all, { lo: 0, hi: 1 });
  assert.deepEqual(overlayAxis("relative", { lo: 0, hi: 100 }).all, { lo: -1, hi: 101 });
});

test("a reading is the nearest point, the kept one of two; beyond the curve there is none", () => {
  const shown = shownOf(layerOn("step"), null);
  const at = (x: number): (number | boolean)[] => {
    const reading = readingAt(shown, x, 2);
    return reading ? [reading.step, reading.raw, reading.recomputed] : [];
  };
  assert.deepEqual(at(11), [10, 3, false]);
  assert.deepEqual(at(30), [30, 1, false]);
  assert.deepEqual([at(41), at(43), at(7)], [[40, 0.5, false], [], []]);
  assert.deepEqual(lastReading(shown)?.raw, 0.5);
  assert.equal(lastReading([]), null);
  const [low, high] = [readingAt(shown, 10, 0), readingAt(shown, 40, 0)];
  assert.equal(difference(high, low), -2.5);
  assert.equal(difference(high, null), null);
});

test("a finer stretch stands where it has points, the whole curve around it", () => {
  const fine = scalars(
    [{ session: null, abandoned_after_step: null }],
    [
      [T0, 15, 7, 0],
      [T0, 25, 8, 0],
    ],
  );
  const window = { scalars: fine, lines: linesOf(fine, (_, step) => step) };
  const shown = shownOf(layerOn("step"), window);
  assert.deepEqual(
    shown.map(({ lo, hi }) => [lo, hi]),
    [
      [-Infinity, 15],
      [15, 25],
      [25, Infinity],
    ],
  );
  const valueAt = (x: number): number | undefined => {
    const point = nearestPoint(shown, x);
    return point?.line.raw[point.i];
  };
  assert.deepEqual([valueAt(12), valueAt(16), valueAt(24), valueAt(40)], [3, 7, 8, 0.5]);
});

test("names lose the directories that all have in common", () => {
  assert.deepEqual(shortNames(["a/b/x", "a/b/y"]), ["x", "y"]);
  assert.deepEqual(shortNames(["a/b/x", "a/c/x"]), ["b/x", "c/x"]);
  assert.deepEqual(shortNames(["lr=1", "lr=2"]), ["lr=1", "lr=2"]);
  assert.deepEqual([shortNames(["a/b"]), shortNames([])], [["b"], []]);
});
