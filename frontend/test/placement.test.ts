/** Whose a run is, where it runs and on what: one sentence, with nothing in it that is not known. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { headline } from "../src/logic/headline";
import { labelWords } from "../src/logic/placement";
import { detail, session, T0 } from "./builders";

const said = (labels: Record<string, string>, over: object = {}) =>
  headline(detail({ labels, sessions: [session(1), session(2, over)] }), [], T0 + 5000)
    .slice(-1)
    .map(({ lead, rest }) => `${lead}: ${rest}`)[0]!;

test("labels are words that can be filtered by", () => {
  assert.deepEqual(labelWords({ team: "vision", user: "ada" }), ["team=vision", "user=ada"]);
});

test("processes, devices, host and labels", () => {
  const place = { world_size: 32, device_count: 32, device_kind: "NVIDIA H100", host: "node-3" };
  assert.equal(said({ user: "ada" }, place), "32 processes on 32 × NVIDIA H100, node-3: user=ada");
  assert.equal(said({}, { device_count: 8, device_kind: null, host: null }), "8 × device: ");
  assert.equal(said({ user: "ada" }, { device_kind: "cpu", world_size: 1 }), "Labels: user=ada");
});

test("of one process without labels nothing is said", () => {
  assert.ok(!said({}, { device_kind: "cpu", world_size: 1 }).includes("cpu"));
});
