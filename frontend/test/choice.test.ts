/** Choosing runs for the comparison, and their colours. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { namesBetween, withoutRuns, withRuns } from "../src/logic/choice";
import { formatState, INITIAL, MOST_CHOSEN, parseState } from "../src/logic/url_state";

test("a run that is chosen gets the lowest colour that is free, and the others keep theirs", () => {
  const three = withRuns([], ["a", "b", "c"]);
  assert.deepEqual(
    three.map(({ run, colour }) => `${run} ${colour}`),
    ["a 0", "b 1", "c 2"],
  );
  const again = withRuns(withoutRuns(three, ["b"]), ["d", "a", "e"]);
  assert.deepEqual(
    again.map(({ run, colour }) => `${run} ${colour}`),
    ["a 0", "c 2", "d 1", "e 3"],
  );
});

test("no more are chosen than can be compared, and each has a colour of its own", () => {
  const names = Array.from({ length: 2 * MOST_CHOSEN }, (_, i) => `run ${i}`);
  const chosen = withRuns(withRuns([], ["last"]), names);
  assert.equal(chosen.length, MOST_CHOSEN);
  assert.equal(new Set(chosen.map(({ colour }) => colour)).size, MOST_CHOSEN);
  assert.ok(chosen.every(({ colour }) => colour < MOST_CHOSEN));
});

test("a stretch goes from one run to another, in either direction", () => {
  const names = ["a", "b", "c", "d"];
  assert.deepEqual(namesBetween(names, "b", "d"), ["b", "c", "d"]);
  assert.deepEqual(namesBetween(names, "c", "a"), ["c", "b", "a"]);
  assert.deepEqual(namesBetween(names, "gone", "c"), ["c"]);
});

test("what is chosen survives in an address, whatever the runs are called", () => {
  const chosen = withRuns([], ["a~b", "lr=0.1,&x", "1~two\nlines", ""]);
  assert.deepEqual(parseState(formatState({ ...INITIAL, chosen })).chosen, chosen);
  assert.deepEqual(parseState("with=99~a&with=~b&with=x&with=3~c&with=4~c").chosen, [{ run: "c", colour: 3 }]);
});
