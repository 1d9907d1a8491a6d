import assert from "node:assert/strict";
import test from "node:test";
import { defaultAxis, hasWallTime, makeAxis } from "../src/logic/axis";
import { boundariesOf, boundaryLabel } from "../src/logic/boundaries";
import { boundariesHover } from "../src/logic/hover";
import { packRows } from "../src/logic/plot";
import { stepAt, wallAt, waysOf } from "../src/logic/progress";
import { clockTicks, durationTicks, niceStep, stepTicks } from "../src/logic/ticks";
import { clampView, fromPixel, isWhole, pan, toPixel, zoomAt } from "../src/logic/view";
import type { Restart } from "../src/types/api";
import { detail, session, T0 } from "./builders";

const run = detail();
const ways = waysOf(run.sessions, [T0 + 1300, T0 + 1550], [400, 500]);

test("a moment lies between checkpoints by the straight line between them", () => {
  assert.equal(stepAt(ways[0]!, T0 + 1150), 200);
  assert.equal(stepAt(ways[0]!, T0 + 1425), 450);
  assert.equal(wallAt(ways[0]!, 500), T0 + 1550);
});

test("checkpoints that contradict the session's own end are passed over", () => {
  const [way] = waysOf([session(1)], [T0 + 1100, T0 + 1200], [650, 200]);
  assert.deepEqual(way!.steps, [0, 200, 600]);
});

test("the axis of running time clips gaps, says how much, and can be read backwards", () => {
  const axis = makeAxis("relative", run.sessions, ways);
  assert.equal(axis.cuts.length, 1);
  assert.equal(axis.cuts[0]!.secs, 400);
  assert.ok(axis.cuts[0]!.hi - axis.cuts[0]!.lo < 20);
  assert.equal(axis.ofWall(T0 + 1000), 0);
  assert.equal(axis.ofWall(T0 + 1600), 600);
  for (const at of [T0 + 900, T0 + 1234, T0 + 1800, T0 + 2345, T0 + 9999]) {
    assert.ok(Math.abs(axis.toWall(axis.ofWall(at))! - at) < 1e-3, `${at}`);
  }
});

test("on the axis of steps a moment lies where its session was", () => {
  const axis = makeAxis("step", run.sessions, ways);
  assert.equal(axis.ofWall(T0 + 1600, 0), 600);
  assert.equal(axis.ofWall(T0 + 2300, 1), 700);
  assert.equal(axis.ofWall(T0 + 2300), 700);
  assert.equal(axis.toWall(700), null);
});

test("a run without wall times has no axis of time, and one without sessions an empty one", () => {
  assert.equal(hasWallTime([session(1, { started: 0 })]), false);
  assert.equal(hasWallTime([session(1, { started: null })]), false);
  const empty = makeAxis("wall", [], []).all;
  assert.ok(empty.hi > empty.lo);
  const instant = makeAxis("relative", [session(1, { ended: T0 + 1000 })], []).all;
  assert.ok(instant.hi > instant.lo);
});

test("a restart has its line, the stretch in which nothing ran, and the stretch that was done again", () => {
  const [wall] = boundariesOf(run.restarts, run.sessions, ways, makeAxis("wall", run.sessions, ways));
  assert.equal(wall!.x, T0 + 2000);
  assert.deepEqual(wall!.down, { lo: T0 + 1600, hi: T0 + 2000 });
  assert.deepEqual(wall!.wasted, { lo: T0 + 1550, hi: T0 + 1600 });
  const [step] = boundariesOf(run.restarts, run.sessions, ways, makeAxis("step", run.sessions, ways));
  assert.deepEqual(step!.wasted, { lo: 500, hi: 600 });
  assert.equal(step!.x, 500);
  assert.equal(boundaryLabel(wall!), "↻ killed · −100 steps · 6 min 40 s down");
  assert.equal(
    boundaryLabel({
      ...wall!,
      restart: { ...run.restarts[0]!, reason: "unknown", rewind_steps: 0, downtime_secs: null },
    }),
    "↻ restart",
  );
});

test("a restart between sessions that are not known, or at no known moment, is not drawn", () => {
  const lost = { ...run.restarts[0]!, from_session: "who" };
  assert.deepEqual(boundariesOf([lost], run.sessions, ways, makeAxis("wall", run.sessions, ways)), []);
  const timeless = { ...run.restarts[0]!, at: null };
  assert.deepEqual(boundariesOf([timeless], run.sessions, ways, makeAxis("wall", run.sessions, ways)), []);
});

test("zooming keeps what is under the pointer, and never leaves the whole", () => {
  const all = { lo: 0, hi: 100 };
  const view = zoomAt({ lo: 20, hi: 60 }, all, 30, 0.5);
  assert.deepEqual(view, { lo: 25, hi: 45 });
  assert.equal(toPixel(30, view, 0, 400), toPixel(30, { lo: 20, hi: 60 }, 0, 400));
  assert.deepEqual(zoomAt(view, all, 30, 1000), all);
  assert.deepEqual(pan(view, all, 10), { lo: 80, hi: 100 });
  assert.ok(clampView({ lo: 5, hi: 5 }, all).hi > 5);
  assert.ok(isWhole(clampView({ lo: -50, hi: 500 }, all), all));
  assert.equal(fromPixel(toPixel(33, view, 10, 300), view, 10, 300), 33);
});

test("ticks are round: 1, 2, 5; minutes and hours; days by name", () => {
  assert.deepEqual([0.3, 1, 1.1, 2.5, 7, 1200].map(niceStep), [0.5, 1, 2, 5, 10, 2000]);
  assert.deepEqual(
    stepTicks({ lo: 0, hi: 10 }, 100).map((t) => t.x),
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
  );
  assert.deepEqual(
    durationTicks({ lo: 0, hi: 7200 }, 4).map((t) => t.label),
    ["0", "30 min", "1 h", "1 h 30 min", "2 h"],
  );
  const day = clockTicks({ lo: 86400 * 100 - 7200, hi: 86400 * 100 + 7200 }, 4, () => 0);
  assert.deepEqual(
    day.map((t) => t.label),
    ["Apr 10 22:00", "23:00", "Apr 11", "01:00", "02:00"],
  );
  assert.equal(day[2]!.strong, true);
});

test("local time that is ahead of UTC moves the ticks", () => {
  const ticks = clockTicks({ lo: 86400 * 100, hi: 86400 * 100 + 86400 }, 4, () => 1800);
  assert.deepEqual(
    ticks.map((t) => t.label),
    ["Apr 11 06:00", "12:00", "18:00", "Apr 12"],
  );
});

test("bars that overlap go below each other, and no further than the last row", () => {
  assert.deepEqual(
    packRows(
      [
        [0, 10],
        [5, 15],
        [10, 20],
      ],
      6,
    ),
    { rows: [0, 1, 0], count: 2 },
  );
  assert.deepEqual(
    packRows(
      [
        [0, 9],
        [1, 9],
        [2, 9],
        [3, 9],
      ],
      2,
    ).rows,
    [0, 1, 1, 1],
  );
  assert.deepEqual(packRows([], 6), { rows: [], count: 1 });
});

test("gaps are clipped by default where hardly anything ran in between", () => {
  const busy = [session(1, { started: 0.5, ended: 600 }), session(2, { started: 700, ended: 1000 })];
  const idle = [session(1, { started: 0.5, ended: 600 }), session(2, { started: 90_000, ended: 90_600 })];
  assert.deepEqual([busy, idle, [], [session(1, { started: 5, ended: 5 })]].map(defaultAxis), [
    "wall",
    "relative",
    "wall",
    "wall",
  ]);
});

test("restarts at one place are told of together", () => {
  const sessions = [session(1), session(2), session(3)];
  const again = (from: string, to: string): Restart => ({
    at: T0,
    from_step: 600,
    to_step: 500,
    rewind_steps: 100,
    rewind_steps_most: 100,
    downtime_secs: 5,
    reason: "lost",
    inferred: false,
    from_session: from,
    to_session: to,
    launch: null,
  });
  const ways = sessions.map(() => ({ walls: [], steps: [] }));
  const found = boundariesOf([again("s1", "s2"), again("s2", "s3")], sessions, ways, makeAxis("step", sessions, ways));
  assert.deepEqual(
    found.map(({ x }) => x),
    [500, 500],
  );
  const { title, rows } = boundariesHover(found);
  assert.equal(title, "↻ 2 restarts here");
  assert.deepEqual(
    rows.map(([name]) => name),
    ["↻ Restart 1", "↻ Restart 2"],
  );
});
