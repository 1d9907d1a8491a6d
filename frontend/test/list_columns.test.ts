/** Chosen columns of the list: keys, values, order, CSV. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ColumnValues, columnText, isColumn, listCsv, namesOf } from "../src/logic/list_columns";
import { sortRuns, startsDescending } from "../src/logic/sort";
import { formatState, INITIAL, parseState } from "../src/logic/url_state";
import type { ColumnsAnswer } from "../src/types/columns";
import { line } from "./builders";

const answer = (over: Partial<ColumnsAnswer>): ColumnsAnswer => ({
  v: 1,
  at: 0,
  generation: 1,
  full: true,
  columns: {},
  ...over,
});

test("a key is a whole column, or a kind and a name; nothing else is one", () => {
  assert.ok(["duration", "tag:loss", "tag:a:b", "hparam:lr", "recorded:world_size"].every(isColumn));
  assert.ok(!["constructor", "constructor:x", "tag:", "tag", ":x", "state"].some(isColumn));
  assert.deepEqual(namesOf("tag:a:b"), { name: "a:b", kind: "last value" });
  assert.deepEqual(namesOf("duration"), { name: "Duration", kind: "" });
});

test("values are shown in the words of the list; what is not finite is, too", () => {
  assert.equal(columnText("tag:loss", 0.31236), "0.3124");
  assert.equal(columnText("tag:loss", "nan"), "NaN");
  assert.equal(columnText("tag:loss", null), "–");
  assert.equal(columnText("duration", 3600), "1 h");
  assert.equal(columnText("hparam:optimizer", "nan"), "nan");
  assert.equal(columnText("hparam:amp", false), "false");
});

test("answers hold what changed, and null where a run has no value any more", () => {
  const values = new ColumnValues();
  values.apply(answer({ columns: { "tag:loss": { a: 1, b: 2 } } }));
  values.apply(answer({ full: false, generation: 2, columns: { "tag:loss": { a: null, c: 3 } } }));
  assert.deepEqual(
    ["a", "b", "c"].map((run) => values.of("tag:loss", run)),
    [null, 2, 3],
  );
  assert.equal(values.generation, 2);
  values.apply(answer({ columns: { "tag:loss": { c: 4 } } }));
  assert.equal(values.of("tag:loss", "b"), null);
});

test("the list is sorted by a chosen column: numbers, then what is not finite, then what is not known", () => {
  const values = new ColumnValues();
  values.apply(answer({ columns: { "tag:loss": { a: 3, b: "nan", d: 0.5 } } }));
  const lines = ["a", "b", "c", "d"].map((run) => line(run));
  const names = (descending: boolean): string[] =>
    sortRuns(lines, { key: "tag:loss", descending }, (key, run) => values.of(key, run)).map(({ run }) => run);
  assert.deepEqual(names(false), ["d", "a", "b", "c"]);
  assert.deepEqual(names(true), ["a", "d", "b", "c"]);
  const keys = ["tag:loss", "tag:val/acc", "started", "hparam:lr"] as const;
  assert.deepEqual(
    keys.map((key) => startsDescending(key)),
    [false, true, true, false],
  );
});

test("columns and the order by one of them survive in an address", () => {
  const state = { ...INITIAL, columns: ["tag:a&b", "host"], sort: { key: "tag:a&b" as const, descending: true } };
  assert.deepEqual(parseState(formatState(state)), state);
  assert.deepEqual(parseState("sort=constructor:x").sort, INITIAL.sort);
});

test("the list as CSV has raw values and the chosen columns", () => {
  const values = new ColumnValues();
  values.apply(answer({ columns: { "tag:loss": { a: 0.25 }, started: { a: 1_795_222_000 } } }));
  const [head, row] = listCsv([line("a", { step: 9120 })], ["tag:loss", "started"], values, ",").split("\r\n") as [
    string,
    string,
  ];
  assert.ok(head.startsWith('"run","state",') && head.endsWith(',"tag:loss","started"'));
  assert.ok(row.startsWith('"a",') && row.includes(",9120,") && row.endsWith(',0.25,"2026-11-21T00:46:40.000Z"'), row);
});
