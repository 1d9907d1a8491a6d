/** Names are matched elsewhere: what is shown until the answer comes, and when none comes. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { NameFilter } from "../src/logic/filter";

interface Asked {
  expression: string;
  names: string[];
  stopped: AbortSignal;
  answer: (names: boolean[]) => void;
  fail: () => void;
}

/** A filter, the questions that it has asked, and how often it has said that something changed. */
function filtering() {
  const asked: Asked[] = [];
  const seen = { changes: 0 };
  const filter = new NameFilter(
    (expression, names, stopped) =>
      new Promise((answer, fail) => {
        asked.push({ expression, names, stopped, answer, fail });
      }),
    () => {
      seen.changes++;
    },
  );
  return {
    filter,
    asked,
    seen,
    select: (text: string, ...names: string[]) => filter.select(text, names, (name) => name.split(" ")),
  };
}

/** Until all that was answered has come. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

test("a text without special characters is looked for at once, in either case", () => {
  const { select, asked, filter } = filtering();
  assert.deepEqual(select("", "a", "b"), ["a", "b"]);
  assert.deepEqual(select("LR", "lr_1", "seed", "xLr"), ["lr_1", "xLr"]);
  assert.deepEqual([asked.length, filter.problem], [0, null]);
});

test("an item is selected by any of its names", () => {
  const { select } = filtering();
  assert.deepEqual(select("team=vision", "a team=vision", "team=visions/b user=ada", "c"), [
    "a team=vision",
    "team=visions/b user=ada",
  ]);
});

test("what an expression selects is known when its answer has come", async () => {
  const { select, asked, seen } = filtering();
  assert.deepEqual(select("^a|^b", "a", "xa"), ["a", "xa"]);
  assert.deepEqual(select("^a|^b", "a", "xa", "b"), ["a", "xa", "b"]);
  assert.deepEqual(
    asked.map(({ expression, names }) => [expression, names]),
    [["^a|^b", ["a", "xa"]]],
  );
  asked[0]?.answer([true, false]);
  await settled();
  assert.equal(seen.changes, 1);
  assert.deepEqual(select("^a|^b", "a", "xa", "b"), ["a", "b"]);
  assert.deepEqual(asked[1]?.names, ["b"]);
  asked[1]?.answer([true]);
  await settled();
  assert.deepEqual(select("^a|^b", "a", "xa", "b"), ["a", "b"]);
  assert.equal(asked.length, 2);
});

test("the last answer stays while the next expression is matched, and its question is stopped by another", async () => {
  const { select, asked } = filtering();
  select("^a", "a", "b");
  asked[0]?.answer([true, false]);
  await settled();
  assert.deepEqual(select("^b", "a", "b"), ["a"]);
  assert.deepEqual(select("^b$", "a", "b"), ["a"]);
  assert.equal(asked[1]?.stopped.aborted, true);
  asked[1]?.answer([false, false]);
  asked[2]?.answer([false, true]);
  await settled();
  assert.deepEqual(select("^b$", "a", "b"), ["b"]);
});

test("what is no expression, or is not answered, is filtered by as plain text", async () => {
  const { select, asked, filter, seen } = filtering();
  assert.deepEqual(select("a(", "a(", "xA(y", "a"), ["a(", "xA(y"]);
  assert.deepEqual([asked.length, filter.problem], [0, "Not a regular expression"]);
  assert.deepEqual(select("(a|aa)+$", "a", "b"), ["a", "b"]);
  assert.equal(filter.problem, null);
  asked[0]?.fail();
  await settled();
  assert.equal(seen.changes, 1);
  assert.deepEqual(select("(a|aa)+$", "a", "x(a|aa)+$"), ["x(a|aa)+$"]);
  assert.equal(filter.problem, "The regular expression cannot be used, or takes too long");
  assert.equal(asked.length, 1);
});
