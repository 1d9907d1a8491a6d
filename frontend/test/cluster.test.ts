import assert from "node:assert/strict";
import test from "node:test";
import { makeAxis } from "../src/logic/axis";
import { boundaryLabel } from "../src/logic/boundaries";
import { decodeColumns } from "../src/logic/columns";
import { headline } from "../src/logic/headline";
import { boundaryHover, recoveryHover, sessionHover } from "../src/logic/hover";
import { marksOf } from "../src/logic/marks";
import { makePlot, sessionAt } from "../src/logic/plot";
import { waysOf } from "../src/logic/progress";
import { recoveryLabel, recoveryMarksOf } from "../src/logic/recoveries";
import { rowName, rowsOf } from "../src/logic/rows_of_plot";
import { WORKER_STATES } from "../src/logic/words";
import { crowdHover, workerHover } from "../src/logic/worker_hover";
import { countWords, crowdOf, FEW, stateSince, workerLanes, worstFirst } from "../src/logic/workers";
import type { WorkerHistory, WorkerSpan } from "../src/types/api";
import { detail, encode, recovery, session, T0, worker } from "./builders";

const run = detail({ recoveries: [recovery()] });
const ways = waysOf(run.sessions, [T0 + 1300, T0 + 2300], [400, 700]);
const noMarks = marksOf(decodeColumns(encode({ saves: 0, thinned: false, errors: [] }, { at: [] })));
const many = (count: number): WorkerHistory[] =>
  Array.from({ length: count }, (_, i) => worker(`worker:${i}`, ["running"]));

test("a restart within a session has its line, the stretch without steps, and the stretch that was done again", () => {
  const [mark] = recoveryMarksOf(run.recoveries, run.sessions, ways, makeAxis("wall", run.sessions, ways));
  assert.equal(mark!.x, T0 + 2400);
  assert.deepEqual(mark!.down, { lo: T0 + 2360, hi: T0 + 2400 });
  assert.deepEqual(mark!.wasted, { lo: T0 + 2300, hi: T0 + 2360 });
  assert.equal(mark!.session, 1);
  const [step] = recoveryMarksOf(run.recoveries, run.sessions, ways, makeAxis("step", run.sessions, ways));
  assert.deepEqual([step!.x, step!.down, step!.wasted], [700, null, { lo: 700, hi: 750 }]);
  assert.equal(recoveryLabel(recovery()), "↺ −50 steps · 40 s");
});

test("a restart within a session of which less is known is drawn as far as it is", () => {
  const bare = [recovery({ from_step: null, to_step: null, rewind_steps: null, secs: 0 })];
  const [mark] = recoveryMarksOf(bare, run.sessions, ways, makeAxis("wall", run.sessions, ways));
  assert.deepEqual([mark!.down, mark!.wasted], [null, null]);
  assert.deepEqual(recoveryMarksOf(bare, run.sessions, ways, makeAxis("step", run.sessions, ways)), []);
  const strange = [recovery({ session: "who" }), recovery({ at: 0 })];
  assert.deepEqual(recoveryMarksOf(strange, run.sessions, ways, makeAxis("wall", run.sessions, ways)), []);
  assert.equal(recoveryLabel(bare[0]!), "↺ 0 s");
});

test("hovering over one tells its error, how often, how long, what was done again, from which checkpoint", () => {
  const [mark] = recoveryMarksOf(run.recoveries, run.sessions, ways, makeAxis("wall", run.sessions, ways));
  const { title, rows } = recoveryHover(mark!);
  assert.equal(title, "↺ Restart 1 within a session");
  const told = Object.fromEntries(rows);
  assert.deepEqual(
    ["Error", "Lost", "Took", "Last step", "Resumed at", "Recomputed", "Restored"].map((name) => told[name]),
    ["UnavailableError: Socket closed", "2 times", "40 s", "750", "700", "50 steps", "model.ckpt-700"],
  );
});

test("a restart that found its model alive says that nothing was lost", () => {
  const sessions = [
    session(1),
    session(2, { first_step: 600, last_step: 900, adopted: true, restored_checkpoint: "x" }),
  ];
  const [boundary] = makePlot(detail({ sessions }), noMarks, [], [], [], "wall").boundaries;
  assert.match(boundaryHover(boundary!).note!, /alive in the parameter servers and was kept: nothing lost/);
  assert.match(boundaryLabel(boundary!), /^↻ killed · model kept · /);
  const rows = sessionHover(sessions[1]!).rows.map(([name]) => name);
  assert.ok(rows.includes("Model") && !rows.includes("Restored"));
});

test("few workers have a lane each, in their own order, whatever they are at", () => {
  const workers = [
    worker("ps:0", ["running"]),
    worker("worker:0", ["running", "lost"]),
    worker("worker:1", ["waiting"]),
  ];
  assert.deepEqual(
    workerLanes(workers, false).map((lane) => [lane.name, lane.crowd]),
    [
      ["ps:0", null],
      ["worker:0", null],
      ["worker:1", null],
    ],
  );
  const plot = makePlot(detail(), noMarks, [], [], workers, "wall");
  const { rows } = rowsOf(plot);
  assert.deepEqual(
    rows.filter((row) => row.kind === "worker").map((row) => rowName(row, plot)),
    ["ps:0", "worker:0", "worker:1"],
  );
});

test("of many workers those in trouble have a lane, then those that were, the latest first; the rest share one", () => {
  const workers = many(100);
  workers[88] = worker("worker:88", ["running", "lost"]);
  workers[63] = worker("worker:63", ["failed"]);
  workers[12] = worker("worker:12", ["stalled", "running", "running"]);
  workers[41] = worker("worker:41", ["running", "lost", "running"]);
  const again: WorkerSpan[] = [
    [T0 + 2000, T0 + 2250, "running", T0, false, null],
    [T0 + 2250, T0 + 2300, "running", T0 + 2249, true, null],
  ];
  workers[7] = worker("worker:7", ["running"], { starts: 2, spans: again });
  const lanes = workerLanes(workers, false);
  assert.deepEqual(
    lanes.map((lane) => lane.name),
    ["worker:63", "worker:88", "worker:7", "worker:41", "worker:12", "95 others"],
  );
  assert.equal(lanes.at(-1)!.workers.length, 95);
  assert.equal(workerLanes(workers, true).length, 100);
  assert.equal(workerLanes(many(100), false)[0]!.name, "100 workers");
});

test("a hundred in trouble do not drown the page, and those without a lane are counted", () => {
  const workers = Array.from({ length: 100 }, (_, i) => worker(`worker:${i}`, ["running", "lost"]));
  const lanes = workerLanes(workers, false);
  assert.equal(lanes.length, FEW + 1);
  assert.deepEqual(
    lanes.at(-1)!.crowd!.map(({ counts }) => counts),
    [{ running: 92 }, { lost: 92 }],
  );
});

test("a worker that only an earlier session knew needs nobody", () => {
  const gone = worker("worker:9", ["lost"], { present: false, sick: false });
  assert.deepEqual(
    worstFirst([gone, worker("worker:1", ["stalled"])]).map(({ name }) => name),
    ["worker:1", "worker:9"],
  );
  assert.equal(
    headline(detail(), [gone], T0).some(({ lead }) => lead.includes("worker")),
    false,
  );
});

test("what many were at together changes when any of them does, and says nothing of time nobody told of", () => {
  const late = worker("b", ["running"], { spans: [[T0 + 2500, T0 + 2600, "running", T0, false, null]] });
  const spans = crowdOf([worker("a", ["waiting", "running"]), worker("c", ["running", "lost"]), late]);
  assert.deepEqual(
    spans.map(({ since, until, counts }) => [since - T0, until - T0, counts]),
    [
      [2000, 2100, { waiting: 1, running: 1 }],
      [2100, 2200, { running: 1, lost: 1 }],
      [2500, 2600, { running: 1 }],
    ],
  );
  assert.equal(countWords({ running: 92, lost: 1, waiting: 3 }), "1 lost, 3 waiting, 92 running");
});

test("hovering over a worker tells its state, since when, when seen, at which step, waiting for whom, where", () => {
  const one = worker("worker:1", ["running", "waiting"], { waiting_for: "ps:0", starts: 3 });
  const now = workerHover(one, T0 + 2150, 1)!;
  assert.equal(now.title, "… worker:1: waiting");
  assert.deepEqual(
    now.rows.map(([name]) => name),
    ["Since", "Last seen", "Waits for", "Phase", "Step", "Steps of its own", "Process since", "Processes", "Host"],
  );
  assert.equal(Object.fromEntries(now.rows).Host, "worker:1.train, pid 7");
  const place = { location: "/srv/job/train.py:25 train", waits_in: "backward" };
  const still = workerHover({ ...one, place }, T0 + 2150, 1)!;
  assert.equal(Object.fromEntries(still.rows)["Makes no progress at"], "/srv/job/train.py:25 train");
  const before = workerHover(one, T0 + 2050, 1)!;
  assert.equal(before.title, "▶ worker:1: running");
  assert.match(before.note!, /it is waiting now/);
  assert.equal(
    before.rows.some(([name]) => name === "Step"),
    false,
  );
  assert.equal(workerHover(one, T0 + 9000, 1), null);
});

test("an error that fills pages is told by its beginning, and whole in the table", () => {
  const error = `InternalError: ${"x".repeat(5000)}`;
  const hover = workerHover(worker("worker:1", ["failed"], { error }), T0 + 2050, 1)!;
  assert.equal(Object.fromEntries(hover.rows).Error!.length, 201);
  const [mark] = recoveryMarksOf([recovery({ error })], run.sessions, ways, makeAxis("wall", run.sessions, ways));
  assert.equal(Object.fromEntries(recoveryHover(mark!).rows).Error!.at(-1), "…");
});

test("hovering over the lane of many tells how many were in which state, and who was in trouble", () => {
  const workers = many(20).map((one, i) => (i < 8 ? worker(one.name, ["lost"]) : one));
  const hover = crowdHover({ name: "20", workers, crowd: crowdOf(workers) }, T0 + 2050, 1)!;
  const told = Object.fromEntries(hover.rows);
  assert.equal(told.States, "8 lost, 12 running");
  assert.match(told["In trouble"]!, /^worker:0 lost, .*, and 2 more$/);
});

test("the state that lasts has lasted since it began, also over a new process", () => {
  assert.equal(stateSince(worker("a", ["running", "lost", "lost"])), T0 + 2100);
  assert.equal(stateSince(worker("a", [])), null);
});

test("what the workers do is told by numbers: findings name those in trouble", () => {
  const lost = worker("worker:1", ["running", "lost"], { last_seen: T0 + 4700 });
  const waiting = worker("worker:2", ["waiting"], { waiting_for: "the chief" });
  const said = (over: object): string => {
    const { lead, rest } = headline(detail(over), [worker("ps:0", ["running"]), lost, waiting], T0 + 5000).at(-1)!;
    return `${lead}: ${rest}`;
  };
  assert.equal(said({}), "3 workers: 1 lost, 1 waiting for the chief, 1 running");
  assert.match(said({ state: "completed" }), /: as last reported: 1 lost/);
});

test("restarts within a session are counted with the others, and their cost is told together", () => {
  const said = (over: Parameters<typeof detail>[0]): string => {
    const found = headline(detail(over), [], T0).find(({ lead }) => lead.includes("cost"))!;
    return `${found.sign} ${found.lead}: ${found.rest}`;
  };
  assert.equal(
    said({ recoveries: [recovery(), recovery()], steps_lost: 200 }),
    "↻ 1 restart, 2 more within a session, cost 9 min 40 s: 6 min 40 s down, 1 min 20 s recovering, " +
      "200 steps recomputed (1 min 40 s); 1 killed, 2 UnavailableError",
  );
  assert.match(
    said({ restarts: [], recoveries: [recovery()] }),
    /^↺ 1 restart within a session cost 2 min 20 s: 40 s recovering, /,
  );
});

test("each state of a worker has a sign of its own", () => {
  assert.equal(new Set(Object.values(WORKER_STATES).map(({ glyph }) => glyph)).size, 6);
});

test("a moment is in the session that had begun last", () => {
  const plot = makePlot(detail(), noMarks, [], [], [], "wall");
  assert.deepEqual(
    [T0, T0 + 1500, T0 + 2000, T0 + 9000].map((at) => sessionAt(plot, at)),
    [0, 0, 1, 1],
  );
});
