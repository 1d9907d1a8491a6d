/** Regular expressions in linear time, against the browser's own. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { makeFilter } from "../src/logic/filter";
import { compile, PatternError } from "../src/logic/pattern";

const PATTERNS = [
  "", "a", "A", "^a", "a$", "^a$", "a|b", "a||b", "(a|b)c", "(?:ab)+", "a*", "a+b?", "a{2}", "a{2,}", "a{1,3}b", "a{x}", "{", "}", "]",
  ".", "a.c", "\\.", "\\/", "[abc]", "[^abc]", "[a-c1-3]", "[-a]", "[a-]", "[]a]|b", "[\\w-]+$", "[^\\d]", "\\d+", "\\D", "\\w\\W", "\\s", "\\S$",
  "\\bb", "b\\b", "\\Bb", "^(?!.*debug)", "lr(?=_0)", "x(?!y)", "(a*)*", "(a|aa)+$", "^(([a-z0-9/-])+)+$", "\\x41", "\\u0062", "[A-Z]+_", "a+?b", "(|a)b",
  "a**", "*a", "(", ")", "[", "a{3,1}", "\\", "[b-a]", "\u00fc", "K", "[^]",
];
const TEXTS = [
  "", "a", "b", "A", "ab", "abc", "aaa", "aab", "a.c", "a/b-c_1", "lr_0.1/seed_3", "debug/run", "run-01234", "x y", "xy", "xz", "A_B", "\u00dc",
  "a{x}", "{", "}", "]", "-", "12", "_", "\n", "bb b", "experiments/resnet50/train",
];

test("a pattern matches what the browser's own engine matches", () => {
  for (const pattern of PATTERNS) {
    let own: RegExp | null = null;
    try {
      own = new RegExp(pattern, "i");
    } catch {
      assert.throws(() => compile(pattern), PatternError, pattern);
      continue;
    }
    const matches = compile(pattern);
    for (const text of TEXTS) assert.equal(matches(text), own.test(text), `${pattern} in ${JSON.stringify(text)}`);
  }
});

test("what cannot be matched in linear time is refused, and filtered by as plain text", () => {
  for (const pattern of ["(a)\\1", "(?<=a)b", "(?<!a)b", "(?<name>a)\\k<name>", "((a{99}){99}){99}"]) {
    assert.throws(() => compile(pattern), PatternError, pattern);
    assert.ok(makeFilter(pattern).problem);
  }
  assert.equal(makeFilter("(a)\\1").test("x(A)\\1y"), true);
});

test("patterns that freeze the browser's own engine end", () => {
  for (const pattern of ["^(([a-z0-9/-])+)+_$", "(a*)*b", "(a|aa)+$", "(.*)*x(.*)*x"]) {
    assert.equal(compile(pattern)(`${"a".repeat(5_000)}!`), false);
  }
  assert.equal(compile("(?!(a+)+$)b")(`${"a".repeat(200)}!`), false);
});
