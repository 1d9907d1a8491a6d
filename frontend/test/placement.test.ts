/** Whose a run is, where it runs and on what: one sentence, with nothing in it that is not known. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { headline } from "../src/logic/headline";
import { labelWords } from "../src/logic/placement";
import { detail, T0 } from "./builders";

const said = (labels: Record<string, string>, place: string | null) =>
  headline(detail({ labels, place }), [], T0 + 5000)
    .slice(-1)
    .map(({ lead, rest }) => `${lead}: ${rest}`)[0]!;

test("labels are words that can be filtered by", () => {
  assert.deepEqual(labelWords({ team: "vision", user: "ada" }), ["team=vision", "user=ada"]);
});

test("the place and labels, each where it is known", () => {
  assert.equal(said({ user: "ada" }, "8 x device"), "8 x device: user=ada");
  assert.equal(said({}, "8 x device"), "8 x device: ");
  assert.equal(said({ user: "ada" }, null), "Labels: user=ada");
  assert.ok(!/^(Labels|null)/.test(said({}, null)));
});
