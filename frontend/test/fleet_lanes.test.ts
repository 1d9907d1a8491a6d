/** Lanes of all runs, the rows they are drawn in, and the periods that can be chosen. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { FleetLane } from "../src/logic/fleet_lanes";
import { fleetRowsOf, itemsIn, lanesOf } from "../src/logic/fleet_lanes";
import { PERIODS } from "../src/logic/period";
import { parseState } from "../src/logic/url_state";
import type { TimelineAnswer, TimelineHeader } from "../src/types/timeline";
import { T0 } from "./builders";

const KINDS: TimelineHeader["kinds"] = ["session", "downtime", "restart"];

/** What `timeline` answers of three runs, of which the second has nothing drawn. */
function answer(over: Partial<TimelineHeader> = {}): TimelineAnswer {
  const columns = {
    run: Float64Array.of(0, 0, 0, 2),
    kind: Float64Array.of(0, 1, 2, 0),
    since: Float64Array.of(T0, T0 + 100, T0 + 160, T0 + 50),
    until: Float64Array.of(T0 + 100, T0 + 160, T0 + 160, T0 + 300),
  };
  const header: TimelineHeader = {
    at: T0 + 300,
    from: T0,
    to: T0 + 300,
    kinds: KINDS,
    trouble: [1],
    thinned: false,
    runs: ["a/x", "a/y", "b/z"],
    all_runs: 3,
    host: ["gpu-7", null, "gpu-8"],
    incidents: [1, 0, 0],
    needs_you: [2],
    ahead: [[2, 7200]],
    label_names: [],
    groups: [
      ["a", [0], [1]],
      ["b", [], [2]],
    ],
    ...over,
  };
  return { header, length: 4, columns };
}

const lanesFor = (groups: TimelineHeader["groups"]): [TimelineHeader["groups"], FleetLane[]] => [
  groups,
  lanesOf(answer({ groups })),
];

/** The rows as they read, those that fold with the key of their group. */
const read = (rows: ReturnType<typeof fleetRowsOf>): string[] =>
  rows.map(({ text, fold, lane }) => `${lane ? "- " : ""}${text}${fold === null ? "" : ` [${fold}]`}`);

test("each run has what it did, where it ran, and how far its clock is ahead", () => {
  const [first, second, third] = lanesOf(answer()) as [FleetLane, FleetLane, FleetLane];
  assert.deepEqual(
    first.items.map(({ kind, since, until }) => [kind, since - T0, until - T0]),
    [
      ["session", 0, 100],
      ["downtime", 100, 160],
      ["restart", 160, 160],
    ],
  );
  assert.deepEqual(
    [first.run, first.host, first.incidents, first.needsYou, first.ahead],
    ["a/x", "gpu-7", 1, false, 0],
  );
  assert.deepEqual([second.items, second.host], [[], null]);
  assert.deepEqual([third.items.length, third.needsYou, third.ahead], [1, true, 7200]);
});

test("in a stretch is what begins, ends or lasts in it", () => {
  const lane = lanesOf(answer())[0] as FleetLane;
  const kinds = (lo: number, hi: number): string[] =>
    itemsIn(lane, { lo: T0 + lo, hi: T0 + hi }).map(({ kind }) => kind);
  assert.deepEqual(kinds(10, 20), ["session"]);
  assert.deepEqual(kinds(100, 110), ["session", "downtime"]);
  assert.deepEqual(kinds(160, 400), ["downtime", "restart"]);
  assert.deepEqual(kinds(161, 400), []);
});

test("runs with incidents stand under their group's name; the healthy are one row that can be opened", () => {
  const [groups, lanes] = lanesFor(answer().header.groups);
  const all = new Set(lanes);
  const folded = ["a: 1 of 2 runs to look at", "- a/x", "▸ 1 run without incident [a]"];
  assert.deepEqual(read(fleetRowsOf(groups, lanes, all, [])), [...folded, "▸ b: 1 run without incident [b]"]);
  assert.deepEqual(read(fleetRowsOf(groups, lanes, all, ["b"])), [
    ...folded,
    "▾ b: 1 run without incident [b]",
    "- b/z",
  ]);
});

test("a group of which no run is shown has no rows, and counts are of what is shown", () => {
  const [groups, lanes] = lanesFor(answer().header.groups);
  const [first, second, third] = lanes as [FleetLane, FleetLane, FleetLane];
  assert.deepEqual(read(fleetRowsOf(groups, lanes, new Set([third]), [])), ["▸ b: 1 run without incident [b]"]);
  assert.deepEqual(read(fleetRowsOf(groups, lanes, new Set([first]), [])), ["a: 1 of 1 run to look at", "- a/x"]);
  assert.deepEqual(read(fleetRowsOf(groups, lanes, new Set([second]), [])), ["▸ a: 1 run without incident [a]"]);
  assert.deepEqual(fleetRowsOf(groups, lanes, new Set(), []), []);
});

test("one group alone needs no heading; runs without a group are called others", () => {
  const [one, lanes] = lanesFor([["", [0], [1, 2]]]);
  assert.deepEqual(read(fleetRowsOf(one, lanes, new Set(lanes), [])), ["- a/x", "▸ 2 runs without incident []"]);
  const [two] = lanesFor([
    ["", [0], []],
    ["b", [2], []],
  ]);
  const headings = read(fleetRowsOf(two, lanes, new Set(lanes), [])).filter((text) => text.includes("to look at"));
  assert.deepEqual(headings, ["Others: 1 of 1 run to look at", "b: 1 of 1 run to look at"]);
});

test("a period is one of those that can be chosen, and as long as it says", () => {
  const hours = Object.entries(PERIODS).map(([word, [secs]]) => [word, secs && secs / 3600]);
  assert.deepEqual(hours, [
    ["12h", 12],
    ["24h", 24],
    ["7d", 168],
    ["all", null],
  ]);
  for (const word of Object.keys(PERIODS)) assert.equal(parseState(`period=${word}`).period, word);
  for (const word of ["", "12", "1h", "toString", "__proto__"])
    assert.equal(parseState(`period=${word}`).period, "12h");
});
