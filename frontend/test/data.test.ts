import assert from "node:assert/strict";
import test from "node:test";
import { column, decodeColumns } from "../src/logic/columns";
import { clusterHover, noticeHover } from "../src/logic/hover";
import type { Marks } from "../src/logic/marks";
import { clusterMarks, isGood, marksOf, onDisk, placeMarks, refined } from "../src/logic/marks";
import { makePlot, momentOf } from "../src/logic/plot";
import { rowsOf } from "../src/logic/rows_of_plot";
import { RunStore } from "../src/logic/run_store";
import { interpolate, lowerBound, nearest } from "../src/logic/search";
import { extent, linesOf } from "../src/logic/segments";
import { makeYScale, yPixel } from "../src/logic/y_scale";
import type { MarksHeader, RunsAnswer } from "../src/types/api";
import { detail, encode, line, recovery, scalars, session, T0 } from "./builders";

test("columns are read as they were written", () => {
  const columns = decodeColumns<{ points: number }>(encode({ points: 7 }, { wall: [1, 2], step: [3, NaN] }));
  assert.equal(columns.header.points, 7);
  assert.deepEqual([...column(columns, "wall")], [1, 2]);
  assert.deepEqual([...column(columns, "step")], [3, NaN]);
  assert.equal(column(columns, "none").length, 0);
});

test("bytes that break off are refused, not half read", () => {
  const whole = encode({}, { wall: [1, 2, 3] });
  assert.throws(() => decodeColumns(whole.slice(0, whole.byteLength - 8)), RangeError);
  assert.throws(() => decodeColumns(whole.slice(0, 20)), RangeError);
  assert.throws(() => decodeColumns(new ArrayBuffer(2)), RangeError);
});

const answer = (over: Partial<RunsAnswer>): RunsAnswer => ({
  v: 1,
  at: T0,
  generation: 1,
  full: false,
  logdir: "/",
  reading: null,
  problems: [],
  removed: [],
  runs: [],
  ...over,
});

test("the overview takes in what changed and lets go of what went", () => {
  const store = new RunStore();
  store.apply(answer({ full: true, runs: [line("a"), line("b")] }), null);
  const changed = store.apply(answer({ generation: 2, removed: ["a"], runs: [line("c")] }), 1);
  assert.deepEqual([...changed].sort(), ["a", "c"]);
  assert.deepEqual(
    store.all().map((l) => l.run),
    ["b", "c"],
  );
});

test("an answer to an older question is dropped", () => {
  const store = new RunStore();
  store.apply(answer({ full: true, generation: 5, runs: [line("a")] }), null);
  assert.equal(store.apply(answer({ generation: 4, removed: ["a"] }), 3).size, 0);
  assert.equal(store.size, 1);
});

test("an answer that holds everything replaces everything, and says that all may have changed", () => {
  const store = new RunStore();
  store.apply(answer({ full: true, runs: [line("a"), line("b")] }), null);
  const changed = store.apply(answer({ full: true, generation: 9, runs: [line("b")] }), 1);
  assert.deepEqual([...changed].sort(), ["a", "b"]);
  assert.deepEqual(
    store.all().map((l) => l.run),
    ["b"],
  );
});

test("places in sorted columns", () => {
  assert.deepEqual(
    [0, 1, 2, 9].map((x) => lowerBound([1, 2, 2, 5], x)),
    [0, 0, 1, 4],
  );
  assert.deepEqual(
    [-1, 1.4, 1.6, 99].map((x) => nearest([1, 2, 5], x)),
    [0, 0, 1, 2],
  );
  assert.equal(nearest([], 1), -1);
  assert.deepEqual(
    [0, 1.5, 9].map((x) => interpolate([1, 2], [10, 20], x)),
    [10, 15, 20],
  );
  assert.ok(Number.isNaN(interpolate([], [], 1)));
});

const GOOD = 1 | 2 | 4;
const GONE = 1 | 4;
const marks = (at: number[], flags: number[]): Marks => {
  const header: MarksHeader = { saves: at.length, thinned: false, errors: [[0, "OSError"]] };
  const columns = { at, step: at, save_secs: at, blocked_secs: at, bytes: at, flags };
  return marksOf(decodeColumns<MarksHeader>(encode(header, columns)));
};
/** Marks that stand for ten saves each, all but one of which are gone. */
const joined = (at: number[]): Marks => {
  const header: MarksHeader = { saves: 10 * at.length, thinned: true, errors: [[1, "OSError"]] };
  const last = at.map((x) => x + 9);
  const ten = at.map(() => 10);
  const columns = { at, step: at, save_secs: at, blocked_secs: at, bytes: at, flags: at.map(() => GOOD) };
  const more = { last_at: last, last_step: last, count: ten, on_disk: at.map(() => 1), gone: at.map(() => 9) };
  return marksOf(decodeColumns<MarksHeader>(encode(header, { ...columns, ...more })));
};
const byMoment = (all: Marks) => placeMarks(all, (at) => at);

test("a mark that stands for several saves counts them, and takes the room from the first to the last", () => {
  const all = joined([0, 10, 50]);
  const { good } = clusterMarks(byMoment(all), all, { lo: 0, hi: 100 }, 0, 100, 7);
  assert.deepEqual(
    good.map((c) => [c.left, c.right, c.count, c.there]),
    [
      [0, 19, 20, 2],
      [50, 59, 10, 1],
    ],
  );
  // Also where it begins before what is looked at.
  const zoomed = clusterMarks(byMoment(all), all, { lo: 57, hi: 60 }, 0, 300, 7);
  assert.deepEqual(zoomed.good.at(-1)?.count, 10);
  const plot = makePlot(detail(), joined([10, 20, 50]), [], [], [], "wall");
  const hover = clusterHover({ left: 0, right: 1, from: 0, to: 2, count: 20, there: 2 }, plot, false);
  assert.equal(hover.title, "◆ 20 checkpoints");
  assert.deepEqual(Object.fromEntries(hover.rows).Steps, "10 to 29");
});

test("finer marks of a window take the place of coarse ones, and each save is in one mark", () => {
  const fine = marks([12, 13], [GOOD, GOOD]);
  const all = refined(joined([0, 10, 20, 30]), fine, { by: "wall", from: 11, to: 14 });
  assert.deepEqual([...all.at], [12, 13, 0, 20, 30]);
  assert.deepEqual([...all.count], [1, 1, 10, 10, 10]);
  assert.deepEqual([...all.errors.keys()], [0]);
  assert.deepEqual([...byMoment(all).xs], [0, 12, 13, 20, 30]);
  assert.equal(refined(joined([0]), fine, { by: "wall", from: null, to: null }), fine);
});

test("a crowd of marks is cut into pieces, so that it shows where saves are dense", () => {
  const count = 50_000;
  const all = marks(
    Array.from({ length: count }, (_, i) => i),
    new Array<number>(count).fill(GOOD),
  );
  const { good } = clusterMarks(byMoment(all), all, { lo: 0, hi: count }, 0, 1100, 7);
  assert.ok(good.length >= 10 && good.length <= 13, String(good.length));
  assert.equal(
    good.reduce((sum, c) => sum + c.count, 0),
    count,
  );
});

test("marks that are too near to each other are one, and failed ones never hide among good ones", () => {
  const all = marks([0, 1, 2, 50, 100], [GOOD, 4, GOOD, GONE, GOOD]);
  const placed = byMoment(all);
  const { good, failed } = clusterMarks(placed, all, { lo: 0, hi: 100 }, 0, 100, 7);
  assert.deepEqual(
    good.map((c) => [c.left, c.right, c.there]),
    [
      [0, 2, 2],
      [50, 50, 0],
      [100, 100, 1],
    ],
  );
  assert.deepEqual(
    failed.map((c) => [c.left, c.count]),
    [[1, 1]],
  );
  const zoomed = clusterMarks(placed, all, { lo: 0, hi: 3 }, 0, 300, 7);
  assert.equal(zoomed.good.filter((c) => c.left <= 300).length, 2);
});

test("marks whose steps go back are put in order, and those without a place are left out", () => {
  const all = marks([5, 3, 4], [GOOD, GOOD, GOOD]);
  const placed = placeMarks(all, (at) => (at === 3 ? NaN : at));
  assert.deepEqual([...placed.xs], [4, 5]);
  assert.deepEqual([...placed.index], [2, 0]);
});

test("flags say whether a save was good and whether its files are there, or not known", () => {
  assert.deepEqual([GOOD, 4].map(isGood), [true, false]);
  assert.deepEqual([GOOD, GONE, 1].map(onDisk), [true, false, null]);
});

test("what a restart abandoned is a line of its own that begins where the kept one leaves it", () => {
  const data = scalars(
    [
      { session: "s1", abandoned_after_step: 2 },
      { session: "s2", abandoned_after_step: null },
    ],
    [
      [10, 1, 5, 0],
      [11, 2, 4, 0],
      [12, 3, 3, 0],
      [20, 3, 2, 1],
      [21, 4, 1, 1],
    ],
  );
  const lines = linesOf(data, (_, step) => step);
  assert.deepEqual(
    lines.map((l) => [l.abandoned, [...l.step]]),
    [
      [false, [1, 2]],
      [true, [2, 3]],
      [false, [3, 4]],
    ],
  );
});

test("smoothed values are the backend's, beside the raw ones", () => {
  const data = scalars(
    [{ session: "s", abandoned_after_step: 1 }],
    [
      [0, 0, 1, 0],
      [1, 1, 3, 0],
      [2, 2, 5, 0],
    ],
  );
  assert.ok(linesOf(data, (wall) => wall).every((line) => line.shown === line.raw));
  data.columns.smoothed = Float64Array.of(1, 2, 3);
  const [kept, again] = linesOf(data, (wall) => wall);
  assert.deepEqual(
    [[...kept!.raw], [...kept!.shown]],
    [
      [1, 3],
      [1, 2],
    ],
  );
  assert.deepEqual(
    [[...again!.raw], [...again!.shown]],
    [
      [3, 5],
      [2, 3],
    ],
  );
});

test("the vertical scale fits what is in sight, leaves out what is no number, and has round ticks", () => {
  const data = scalars(
    [{ session: null, abandoned_after_step: null }],
    [
      [0, 0, 1, 0],
      [1, 1, NaN, 0],
      [2, 2, 3, 0],
      [9, 9, 99, 0],
    ],
  );
  const lines = linesOf(data, (wall) => wall);
  assert.deepEqual(extent(lines, 0, 5, false), [1, 3]);
  assert.equal(extent(lines, 4, 5, false), null);
  const scale = makeYScale([1, 3], false, 150);
  assert.ok(scale.lo < 1 && scale.hi > 3);
  assert.deepEqual(
    scale.ticks.map((t) => t.label),
    ["1", "1.5", "2", "2.5", "3"],
  );
  assert.ok(yPixel(3, scale, 0, 100) < yPixel(1, scale, 0, 100));
});

test("a constant has a scale too, and a logarithm leaves out what has none", () => {
  assert.ok(makeYScale([5, 5], false, 150).hi > 5);
  assert.ok(makeYScale([0, 0], false, 150).hi > 0);
  const data = scalars(
    [{ session: null, abandoned_after_step: null }],
    [
      [0, 0, -1, 0],
      [1, 1, 10, 0],
      [2, 2, 1000, 0],
    ],
  );
  assert.deepEqual(
    extent(
      linesOf(data, (w) => w),
      0,
      9,
      true,
    ),
    [10, 1000],
  );
  const scale = makeYScale([10, 1000], true, 150);
  assert.ok(Math.abs(yPixel(100, scale, 0, 100) - 50) < 1e-9);
  assert.ok(scale.ticks.some((t) => t.label === "100"));
});

test("a run without moments is laid out over its steps", () => {
  const sessions = [
    session(1, { started: 0, ended: 0 }),
    session(2, { started: 0, ended: 0, first_step: 600, last_step: 700 }),
  ];
  const plot = makePlot(detail({ sessions, restarts: [] }), marks([], []), [], [], [], "wall");
  assert.equal(plot.axis.kind, "step");
  assert.deepEqual(
    plot.bars.map((bar) => bar?.hi),
    [600, 700],
  );
});

test("only rows that hold something are drawn", () => {
  const bare = makePlot(detail({ restarts: [] }), marks([], []), [], [], [], "wall");
  assert.deepEqual(
    rowsOf(bare).rows.map((row) => row.kind),
    ["sessions"],
  );
  const full = makePlot(detail(), marks([T0 + 1100], [GOOD]), [], [], [], "wall");
  assert.deepEqual(
    rowsOf(full).rows.map((row) => row.kind),
    ["labels", "sessions", "checkpoints"],
  );
  const recovered = makePlot(detail({ restarts: [], recoveries: [recovery()] }), marks([], []), [], [], [], "wall");
  assert.deepEqual(
    rowsOf(recovered).rows.map((row) => row.kind),
    ["labels", "sessions"],
  );
});

test("what the program said lies where it was said first", () => {
  const notice = { severity: "page", text: "x", count: 2, since: T0 + 5, at: T0 + 9, step: 300, worker: null } as const;
  const plot = makePlot(detail({ notices: [notice] }), marks([], []), [], [], [], "wall");
  assert.deepEqual(
    plot.notices.map(({ x }) => x),
    [T0 + 5],
  );
  assert.equal(noticeHover(notice).title, "page: x");
});

test("a point without a moment lies where its session was at its step", () => {
  const plot = makePlot(detail(), marks([], []), [], [], [], "wall");
  assert.equal(momentOf(plot, 300, 0), T0 + 1300);
  assert.ok(Number.isNaN(momentOf(plot, 300, undefined)));
  const only = linesOf(scalars([{ session: null, abandoned_after_step: null }], [[0, 0, 5, 0]]), () => NaN);
  assert.equal(extent(only, 0, 9, false), null);
});
