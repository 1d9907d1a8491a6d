import assert from "node:assert/strict";
import test from "node:test";
import { boundaryLabel } from "../src/logic/boundaries";
import { decodeColumns } from "../src/logic/columns";
import { headline } from "../src/logic/headline";
import { boundariesHover, boundaryHover, sessionHover } from "../src/logic/hover";
import { marksOf } from "../src/logic/marks";
import { makePlot } from "../src/logic/plot";
import { hasResumed, RESUMES, resumeOf, resumeText } from "../src/logic/resume";
import { reasonOf } from "../src/logic/words";
import type { Session } from "../src/types/api";
import { detail, encode, session, T0 } from "./builders";

const noMarks = marksOf(decodeColumns(encode({ saves: 0, thinned: false, errors: [] }, { at: [] })));

test("a program that has written nothing yet, and a process that is gone, are named as such", () => {
  const first = (over: object) => headline(detail(over), [], T0 + 5000)[0]!.rest;
  const launch = { attempt: 1, started: T0, ended: null, cause: null, action: null, text: null };
  assert.equal(first({ state: "unknown", sessions: [], launch }), "the program has written nothing yet");
  assert.ok(
    sessionHover(session(1, { gone: true })).rows.some(
      ([name, value]) => name === "Process" && value.startsWith("gone"),
    ),
  );
});

test("a restart's reason is what its restarter knows, else how the session ended", () => {
  const restart = detail().restarts[0]!;
  const launch = { attempt: 1, started: T0, ended: T0 + 9, cause: "hang", action: "restart", text: "x" };
  const label = (cause: string | null): string =>
    reasonOf({ ...restart, reason: "signal", launch: { ...launch, cause } }).label;
  assert.deepEqual(["hang", "oom", "preempted", "error", null, "toString"].map(label), [
    "hung",
    "OOM-killed",
    "preempted",
    "signal",
    "signal",
    "signal",
  ]);
  const run = detail({ restarts: [{ ...restart, reason: "signal", launch }] });
  const [boundary] = makePlot(run, noMarks, [], [], [], "wall").boundaries;
  assert.match(boundaryLabel(boundary!), /^↻ hung · /);
  assert.ok(headline(run, [], T0 + 5000).some(({ rest }) => rest.endsWith("; hung")));
});

test("whether a resume was exact is shown at the restart and in the tables; silence is no yes", () => {
  const reasons = ["DataLoader without position: 312 batches will repeat.", "x".repeat(5000), "c.", "d.", "e."];
  const cut = `DataLoader without position: 312 batches will repeat; ${"x".repeat(160)}…; c; and 2 more reasons`;
  const equal = { text: "3 of 3 recomputed losses equal", tag: null };
  const differs = { text: "loss at step 15 differs (0.412 before, 0.415 now)", tag: "loss" };
  const cases: [Partial<Session>, string, string][] = [
    [{ resume_exact: true }, "not observed", "not observed"],
    [{ resume_exact: true, resume_check: equal }, "observed exact (3 of 3 recomputed losses equal)", "observed exact"],
    [{ resume_check: equal }, "observed exact (3 of 3 recomputed losses equal)", "observed exact"],
    [{ resume_exact: false, resume_reasons: ["c."], resume_check: equal }, `not exact: c; ${equal.text}`, "not exact"],
    [
      { resume_exact: false, resume_reasons: [`${differs.text}.`], resume_check: differs },
      `not exact: ${differs.text}`,
      "not exact",
    ],
    [{ resume_exact: false, resume_reasons: reasons }, `not exact: ${cut}`, "not exact"],
    [{ resume_exact: false }, "not exact", "not exact"],
    [{ resume_exact: null, resume_reasons: reasons }, "unknown", "unknown"],
  ];
  for (const [over, text, word] of cases) {
    const sessions = [session(1), session(2, { first_step: 500, last_step: 900, ...over })];
    const run = detail({ sessions });
    assert.deepEqual([resumeText(sessions[1]), RESUMES[resumeOf(sessions[1])].label], [text, word]);
    const [boundary] = makePlot(run, noMarks, [], [], [], "wall").boundaries;
    assert.ok(boundaryHover(boundary!).rows.some(([name, value]) => name === "Resume" && value === text));
    assert.ok(boundariesHover([boundary!, boundary!]).rows.every(([, value]) => value.endsWith(`resume ${word}`)));
    assert.equal(boundaryLabel(boundary!).endsWith(` · ${word}`), word !== "unknown");
    assert.ok(sessionHover(sessions[1]!).rows.some(([name, value]) => name === "Resume" && value === text));
  }
  assert.deepEqual([session(1), session(2), session(1, { resume_exact: true })].map(hasResumed), [false, true, true]);
  assert.equal(resumeText(undefined), "unknown");
});
