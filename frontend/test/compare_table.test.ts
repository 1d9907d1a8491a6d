/** The comparison's table: its columns, their order, what groups have in common. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { CompareColumn } from "../src/logic/compare_columns";
import { bestOf, compareColumns, orderOf, shown, shownOfGroup, sortCompared } from "../src/logic/compare_columns";
import { toCsv } from "../src/logic/csv";
import { groupsOf, spreadOf } from "../src/logic/grouping";
import { directionOf } from "../src/logic/sort";
import { formatState, INITIAL, parseState } from "../src/logic/url_state";
import type { ComparedRun, TagSummary } from "../src/types/compare";

const summary = (over: Partial<TagSummary>): TagSummary => ({
  points: 10,
  last: 0.5,
  last_step: 100,
  min: 0.4,
  min_step: 80,
  max: 0.9,
  max_step: 10,
  nonfinite: 0,
  first_nonfinite_step: null,
  ...over,
});

const compared = (run: string, over: Partial<ComparedRun> = {}): ComparedRun => ({
  run,
  problem: null,
  state: "completed",
  step: 100,
  steps_per_sec: 4,
  goodput: 0.9,
  restarts: 0,
  lost_secs: 12,
  started: 1_795_222_000,
  duration_secs: 3600,
  host: "node-7",
  labels: {},
  hparams: {},
  versions: {},
  recorded: {},
  tags: ["loss"],
  reading: false,
  values: { loss: summary({}) },
  ...over,
});

const columnOf = (columns: CompareColumn[], key: string): CompareColumn => {
  const found = columns.find((column) => column.key === key);
  assert.ok(found, `${key} is one of ${columns.map((column) => column.key).join()}`);
  return found;
};

test("the best is the lowest or the highest value, by the tag's name or as chosen, and says at which step", () => {
  assert.equal(directionOf("val/loss", null), "min");
  assert.equal(directionOf("val/accuracy", null), "max");
  assert.equal(directionOf("val/accuracy", "min"), "min");
  const runs = [compared("a"), compared("b", { values: { loss: summary({ min: 0.1, min_step: 7 }) } })];
  const columns = compareColumns(runs, INITIAL);
  const best = columnOf(columns, "best:loss");
  assert.equal(bestOf(best, runs), 0.1);
  assert.equal(best.detail?.(runs[1]!), "at 7");
  const highest = columnOf(compareColumns(runs, { ...INITIAL, best: "max" }), "best:loss");
  assert.equal(shown(highest, highest.value(runs[0]!)), "0.9");
  assert.equal(bestOf(highest, runs), null, "all are the same");
});

test("the best of the first tag comes first, what is not known last, whichever way round", () => {
  const runs = [
    compared("reading", { tags: null, values: null }),
    compared("worse", { values: { acc: summary({ max: 0.7 }), loss: summary({}) } }),
    compared("better", { values: { acc: summary({ max: 0.8 }), loss: summary({}) } }),
  ];
  const columns = compareColumns(runs, INITIAL);
  const names = (text: string): string[] => sortCompared(runs, orderOf(text, columns), columns).map(({ run }) => run);
  assert.deepEqual(names(""), ["better", "worse", "reading"]);
  assert.deepEqual(names("best:acc"), ["worse", "better", "reading"]);
  assert.deepEqual(names("-run"), ["worse", "reading", "better"]);
  assert.deepEqual(names("no such column"), ["reading", "worse", "better"]);
});

test("a value that is not finite is said, with the tag and the step at which it began", () => {
  const values = { loss: summary({ last: null, nonfinite: 3, first_nonfinite_step: 812 }), lr: summary({}) };
  const [good, bad, unread] = [compared("a"), compared("b", { values }), compared("c", { tags: null, values: null })];
  const column = columnOf(compareColumns([good, bad, unread], INITIAL), "nonfinite");
  const words = (run: ComparedRun): string => `${shown(column, column.value(run))} ${column.detail?.(run)}`.trim();
  assert.deepEqual([good, bad, unread].map(words), ["no", "yes loss from step 812", "–"]);
  assert.equal(shownOfGroup(column, [good, bad]).text, "1 of 2");
  const last = columnOf(compareColumns([good, bad, unread], INITIAL), "last:loss");
  const none = compared("d", { values: { loss: summary({ last: null, last_step: null }) } });
  assert.deepEqual(
    [good, bad, unread, none].map((run) => last.detail?.(run)),
    ["", "not finite", "", ""],
  );
});

test("whether a run has NaN is not known where it has none of the tags", () => {
  const runs = [compared("a"), compared("empty", { tags: [], values: {} })];
  const column = columnOf(compareColumns(runs, INITIAL), "nonfinite");
  assert.deepEqual(
    runs.map((run) => shown(column, column.value(run))),
    ["no", "–"],
  );
});

test("what is configured is a column for each name, also one that every object has", () => {
  const runs = [
    compared("a", { hparams: { lr: 0.001, constructor: "x" }, versions: { torch: "2.13.0" } }),
    compared("b", { hparams: { lr: 1e-5, amp: true } }),
  ];
  const columns = compareColumns(runs, INITIAL);
  const lr = columnOf(columns, "hparams.lr");
  assert.deepEqual(
    runs.map((run) => shown(lr, lr.value(run))),
    ["0.001", "0.00001"],
  );
  const odd = columnOf(columns, "hparams.constructor");
  assert.deepEqual(
    runs.map((run) => shown(odd, odd.value(run))),
    ["x", "–"],
  );
  assert.equal(columnOf(columns, "versions.torch").differs, "versions.torch");
});

test("groups have the mean and the range of their values, and say how many are known", () => {
  assert.deepEqual(spreadOf([1, null, 3, Number.NaN]), { mean: 2, min: 1, max: 3, count: 2 });
  assert.equal(spreadOf([null]), null);
  const runs = [1, 3, null].map((min, i) => compared(`lr=${i}`, { values: { loss: summary({ min }) } }));
  const best = columnOf(compareColumns(runs, INITIAL), "best:loss");
  assert.deepEqual(shownOfGroup(best, runs), { text: "2", range: "1 to 3, 2 of 3 runs" });
  assert.deepEqual(shownOfGroup(columnOf(compareColumns(runs, INITIAL), "host"), runs).text, "node-7");
  const hosts = [compared("a", { host: "x" }), compared("b")];
  assert.equal(shownOfGroup(columnOf(compareColumns(hosts, INITIAL), "host"), hosts).text, "2 values");
});

test("groups come in the order of their rows, the rows without a text last", () => {
  const groups = groupsOf(["b1", "x", "a1", "b2"], (row) => (row === "x" ? null : (row[0] as string)));
  assert.deepEqual(groups, [
    { name: "b", rows: ["b1", "b2"] },
    { name: "a", rows: ["a1"] },
    { name: null, rows: ["x"] },
  ]);
});

test("a table is copied with tabs, and its texts are quoted", () => {
  assert.equal(toCsv(["a", "b"], [["x\ty", 1]], "\t"), '"a"\t"b"\r\n"x\ty"\t1\r\n');
});

test("what the table shows survives in an address", () => {
  const state = {
    ...INITIAL,
    without: ["host", "hparams.lr"],
    best: "max" as const,
    group: "lr=(.*),",
    compareSort: "-x",
  };
  assert.deepEqual(parseState(formatState(state)), state);
  assert.equal(parseState("best=no").best, null);
});
