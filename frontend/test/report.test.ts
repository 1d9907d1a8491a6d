import assert from "node:assert/strict";
import test from "node:test";
import { formatUtc } from "../src/logic/format";
import { linesOf } from "../src/logic/segments";
import { smoothed } from "../src/logic/smoothing";
import { BackendError } from "../src/net/backend_error";
import type { Report } from "../src/net/report";
import { reportClient } from "../src/net/report";
import type { Checkpoint } from "../src/types/api";
import { detail, encode, line, scalars, T0 } from "./builders";

const inBase64 = (bytes: ArrayBuffer): string => Buffer.from(bytes).toString("base64");

const curve = (thinned: boolean): string =>
  inBase64(
    encode(
      { points: 3, thinned, segments: [{ session: "s1", abandoned_after_step: null }] },
      { wall: [T0, T0 + 1, T0 + 2], step: [1, 2, 3], value: [1, 3, NaN], segment: [0, 0, 0] },
    ),
  );

const saves = [5, 4, 3, 2, 1].map((step) => ({ step }) as Checkpoint);

const made = (over: Partial<Report> = {}): Report => ({
  run: "a",
  at: T0 + 5000,
  whole_points: 4096,
  left_out: [],
  answers: {
    runs: {
      v: 1,
      at: T0 + 5000,
      generation: 1,
      full: true,
      logdir: "/runs",
      reading: null,
      problems: [],
      removed: [],
      runs: [line("a")],
    },
    run: detail(),
    threads: { threads: [] },
    workers: { workers: [] },
    stalls: { stalls: [] },
    checkpoints: { total: 5, offset: 0, checkpoints: saves },
    tags: { tags: [] },
  },
  marks: inBase64(encode({ saves: 1, thinned: false, errors: [] }, { at: [T0], step: [1], flags: [1] })),
  scalars: { loss: curve(false), many: curve(true), ["__proto__"]: curve(false) },
  ...over,
});

const whole = { by: "wall", from: null, to: null, pixels: 100, smoothing: null } as const;

test("a report answers from the page what the backend would", async () => {
  const client = reportClient(made());
  assert.equal((await client.runs(null)).runs[0]?.run, "a");
  assert.equal((await client.run("a")).at, T0 + 5000);
  assert.deepEqual(
    await Promise.all([client.threads("a"), client.workers("a"), client.stalls("a"), client.tags("a")]),
    [[], [], [], []],
  );
  const marks = await client.checkpointMarks("a", whole);
  assert.deepEqual([...(marks.columns.at ?? [])], [T0]);
});

test("pages of saves come from both ends", async () => {
  const client = reportClient(made());
  const steps = async (offset: number, order: "newest" | "oldest"): Promise<(number | null)[]> =>
    (await client.checkpoints("a", offset, 2, order)).checkpoints.map(({ step }) => step);
  assert.deepEqual(await steps(0, "newest"), [5, 4]);
  assert.deepEqual(await steps(4, "newest"), [1]);
  assert.deepEqual(await steps(0, "oldest"), [1, 2]);
});

test("a curve is whole whatever stretch is asked for, and a tag may have any name", async () => {
  const client = reportClient(made());
  for (const tag of ["loss", "__proto__"]) {
    const found = await client.scalars("a", tag, { ...whole, from: T0 + 1, to: T0 + 2 });
    assert.deepEqual([...(found.columns.value ?? [])], [1, 3, NaN]);
    assert.equal(found.columns.smoothed, undefined);
  }
  await assert.rejects(client.scalars("a", "toString", whole), BackendError);
});

test("a curve is smoothed where all of its points are there, and only there", async () => {
  const client = reportClient(made());
  const query = { ...whole, smoothing: 0.5 };
  const { columns } = await client.scalars("a", "loss", query);
  assert.deepEqual([...(columns.smoothed ?? [])], [1, 7 / 3, NaN]);
  assert.equal((await client.scalars("a", "many", query)).columns.smoothed, undefined);
});

test("an average goes on along what was kept", () => {
  const columns = scalars(
    [
      { session: "s1", abandoned_after_step: 1 },
      { session: "s2", abandoned_after_step: null },
    ],
    [
      [1, 1, 1, 0],
      [2, 2, 3, 0],
      [3, 3, 9, 0],
      [4, 2, 5, 1],
    ],
  );
  const found = smoothed(columns, 0.5);
  // The second session continues from step 1: (1 * 0.25 + 5 * 0.5) / 0.75.
  assert.deepEqual(
    [...found].map((value) => Number(value.toFixed(6))),
    [1, 2.333333, 6.142857, 3.666667],
  );
  assert.equal(linesOf(columns, (wall) => wall).length, 3);
});

test("the moment of a report reads the same everywhere", () => {
  assert.equal(formatUtc(1_795_648_202), "2026-11-25 23:10:02 UTC");
});
