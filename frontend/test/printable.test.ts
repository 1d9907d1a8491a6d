import assert from "node:assert/strict";
import test from "node:test";
import names from "../../tests/hostile/names.json";
import { printable, printableLines } from "../src/logic/printable";

test("names are shown as the commands show them", () => {
  for (const { name, shown } of names) assert.equal(printable(name), shown);
});

test("what was made printable once stays as it is", () => {
  for (const { shown } of names) assert.equal(printable(shown), shown);
});

test("line breaks stay where they mean something", () => {
  assert.equal(printableLines("a\u202e\n\tb"), "a\\u202e\n\\tb");
  assert.equal(printable("\u{e0001}"), "\\U000e0001");
});
