import assert from "node:assert/strict";
import test from "node:test";
import cells from "../../tests/hostile/cells.json";
import { fileName, isoMoment, toCsv } from "../src/logic/csv";
import { runbookOf, sinceWords, standingWords } from "../src/logic/findings";
import {
  formatAgo,
  formatAtLeast,
  formatBytes,
  formatDuration,
  formatMoment,
  formatRate,
  formatShare,
  formatValue,
  itsNow,
  titleOf,
  zoneOf,
} from "../src/logic/format";
import { partsOf } from "../src/logic/goodput";
import { headline } from "../src/logic/headline";
import { formatHidden, isHidden, MOST_HIDDEN, parseHidden, withChange, withRun } from "../src/logic/hidden";
import { sessionHover, stallHover, threadHover } from "../src/logic/hover";
import { rowAt, scrollToRow, topsOf, visibleRows } from "../src/logic/rows";
import { sortRuns, startsDescending } from "../src/logic/sort";
import { sparkline } from "../src/logic/sparkline";
import { ownFrame, placeLabel, secondLook, stacksInOrder, stallLabels } from "../src/logic/stalls";
import { defaultTags } from "../src/logic/tags";
import { formatState, INITIAL, parseState } from "../src/logic/url_state";
import { RUN_STATES, wordOf } from "../src/logic/words";
import { linesOf } from "../src/logic/wrap";
import type { Tag } from "../src/types/api";
import { detail, finding, line, session, T0 } from "./builders";

test("numbers are short, exact where they can be, and a dash where nothing is known", () => {
  assert.deepEqual([0, 0.5, 0.00051234, 1e-5, 123456, 1.5e9, -0.25].map(formatValue), [
    "0",
    "0.5",
    "0.0005123",
    "1e-5",
    "123,456",
    "1.5e9",
    "-0.25",
  ]);
  assert.deepEqual([NaN, Infinity, null].map(formatValue), ["NaN", "∞", "–"]);
  assert.deepEqual([0.5, 18.44, 1234].map(formatRate), ["0.5", "18.4", "1,234"]);
  assert.deepEqual([0, 999, 1000, 512_000_000, 1.2e12].map(formatBytes), ["0 B", "999 B", "1 kB", "512 MB", "1.2 TB"]);
});

test("durations have two units at most, and no rounding error between them", () => {
  assert.deepEqual([0, 0.0004, 0.02, 1.5, 59.6, 125, 3600, 3599.7, 90_000, 266_400].map(formatDuration), [
    "0 s",
    "< 1 ms",
    "20 ms",
    "1.5 s",
    "1 min",
    "2 min 5 s",
    "1 h",
    "1 h",
    "1 d 1 h",
    "3 d 2 h",
  ]);
  assert.equal(formatDuration(-5), "−5 s");
  assert.equal(formatAgo(T0, T0 + 7200), "2 h ago");
  assert.equal(formatAgo(T0 + 60, T0), "now");
  // A clock that is ten minutes behind: what it wrote just now is not ten minutes old.
  assert.equal(formatAgo(T0 - 600, itsNow({ clock_skew_secs: -600 }, T0)), "now");
  assert.equal(formatAgo(T0 - 60, itsNow({ clock_skew_secs: null }, T0)), "1 min ago");
  assert.equal(formatAgo(T0 - 1e8, T0), "3.2 y ago");
  assert.deepEqual([formatAgo(0, T0), formatMoment(0)], ["–", "–"]);
});

test("a share is all or nothing only where it is", () => {
  assert.deepEqual([0, 0.0001, 0.5, 0.99999, 1].map(formatShare), ["0 %", "< 0.1 %", "50 %", "> 99.9 %", "100 %"]);
});

test("moments are local for people and UTC for machines", () => {
  assert.match(formatMoment(T0), /^2026-11-2\d \d\d:\d\d:\d\d$/);
  assert.equal(isoMoment(0), "1970-01-01T00:00:00.000Z");
  assert.deepEqual(
    [null, NaN, 1e300].map((at) => isoMoment(at)),
    ["", "", ""],
  );
});

test("CSV quotes each text, and lets no cell become a formula", () => {
  assert.equal(
    toCsv(
      ["a", "b"],
      [
        ["x,y", 'say "hi"'],
        ["=1+1", -2],
        [null, true],
      ],
    ),
    '"a","b"\r\n"x,y","say ""hi"""\r\n"\'=1+1",-2\r\n,true\r\n',
  );
  for (const { text, shown } of cells) {
    assert.equal(toCsv([], [[text]]), `\r\n"${shown.replaceAll('"', '""')}"\r\n`);
  }
  assert.equal(fileName("../../etc/<b>", "restarts"), "etc-b-restarts.csv");
  assert.equal(fileName("...", "x"), "run-x.csv");
});

test("runs are sorted by a column, what is not known last, whichever way round", () => {
  const lines = [line("ok"), line("bad", { goodput: null }), line("done", { goodput: 0.1 })];
  const names = (descending: boolean) => sortRuns(lines, { key: "goodput", descending }).map((l) => l.run);
  assert.deepEqual(names(false), ["done", "ok", "bad"]);
  assert.deepEqual(names(true), ["ok", "done", "bad"]);
  assert.equal(startsDescending("restarts"), true);
  const again = [line("a", { recoveries: 3 }), line("b", { restarts: 1 }), line("c", { restarts: 1, recoveries: 1 })];
  assert.deepEqual(
    sortRuns(again, { key: "restarts", descending: true }).map((l) => l.run),
    ["c", "b", "a"],
  );
});

test("what needs somebody comes first, the most severe and newest before the rest", () => {
  const needs = (run: string, severity: "page" | "warn", since: number | null) =>
    line(run, { standing: "needs_you", finding: finding({ severity, since }), more_findings: 0 });
  const lines = [
    line("over last month", {
      state: "lost",
      standing: "over",
      finding: finding({ severity: "info" }),
      last_event: T0,
    }),
    line("over now", { state: "completed", standing: "over", last_event: T0 + 900 }),
    line("not judged", { standing: "unknown", more_findings: null }),
    line("runs b", { last_event: T0 + 5 }),
    line("runs a", { finding: finding({ severity: "info", since: T0 + 99 }), last_event: T0 }),
    needs("slow", "warn", T0 + 500),
    needs("hangs", "page", T0 + 100),
    needs("NaN", "page", null),
    needs("killed", "page", T0 + 200),
  ];
  assert.deepEqual(
    sortRuns(lines, { key: "state", descending: false }).map((l) => l.run),
    ["killed", "hangs", "NaN", "slow", "runs a", "runs b", "not judged", "over now", "over last month"],
  );
  assert.deepEqual(
    [standingWords("needs_you", 1, "1"), standingWords("needs_you", 5, "5")],
    ["1 needs you", "5 need you"],
  );
});

test("since when is told by the browser, with the day where that is not today's", () => {
  assert.match(sinceWords(finding(), T0 + 180), /^since \d\d:\d\d:\d\d \(3 min\)$/);
  assert.match(sinceWords(finding(), T0 + 3 * 86_400), /^since 2026-11-2\d \d\d:\d\d:\d\d \(3 d\)$/);
  assert.equal(sinceWords(finding({ since: null }), T0), "");
  assert.equal(runbookOf(finding()), "alerts#supervisortrainingstalled");
  assert.equal(runbookOf(finding({ alert: null })), null);
});

test("how many lines a text takes is known before it is in the page", () => {
  const lines = (text: string) => linesOf(text, 10, (word) => word.length);
  assert.deepEqual(
    ["", "ten fit in", "eleven fit no", "x".repeat(25), `a ${"x".repeat(25)} b`].map(lines),
    [1, 1, 2, 3, 4],
  );
});

test("names are sorted as people count", () => {
  const lines = ["run10", "run9", "Run1"].map((name) => line(name));
  assert.deepEqual(
    sortRuns(lines, { key: "run", descending: false }).map((l) => l.run),
    ["Run1", "run9", "run10"],
  );
});

test("the address holds the view, whatever the names in it", () => {
  const state = {
    ...INITIAL,
    run: "a b/<c>&d=1%",
    axis: "step" as const,
    zoom: { lo: 1.5, hi: 2.5 },
    tags: ["x&y", "ü"],
    smoothing: 0.6,
    log: true,
    allWorkers: true,
    filter: "^a.*[",
    state: "lost" as const,
    age: "7d",
    hidden: new Map([["a b~/<c>&d", "lost.2"]]),
    showHidden: true,
    sort: { key: "goodput" as const, descending: true },
  };
  assert.deepEqual(parseState(formatState(state)), state);
  assert.equal(formatState(INITIAL), "");
  assert.deepEqual(parseState(""), INITIAL);
  assert.deepEqual(parseState(formatState({ ...INITIAL, tags: [] })).tags, []);
});

test("a run that was hidden comes back once something changes in it", () => {
  const failed = line("a~b", { state: "failed", restarts: 2 });
  const hidden = withRun(new Map(), failed, true);
  assert.ok(isHidden(hidden, failed) && isHidden(hidden, { ...failed, last_event: T0 + 99, step: 11 }));
  assert.ok(!isHidden(hidden, { ...failed, state: "running" }) && !isHidden(hidden, { ...failed, restarts: 3 }));
  assert.ok(!isHidden(hidden, line("other", { state: "failed", restarts: 2 })));
  assert.deepEqual(parseHidden(formatHidden(hidden)), hidden);
  assert.equal(withRun(hidden, failed, false).size, 0);
  assert.deepEqual(parseHidden(["", "no sign", "~", 7, null]), new Map());
});

test("what another tab hides or shows is so here, too, beside what a link hides", () => {
  const [linked, old, fresh] = ["linked", "old", "fresh"].map((run): [string, string] => [run, "lost.0"]);
  const here = new Map([linked!, old!]);
  assert.deepEqual([...withChange(here, new Map([old!]), new Map([fresh!])).keys()], ["linked", "fresh"]);
  assert.deepEqual([...withChange(here, new Map(), new Map()).keys()], ["linked", "old"]);
  const again = withChange(here, new Map([old!]), new Map([["old", "lost.1"]]));
  assert.equal(again.get("old"), "lost.1");
});

test("the newest hidden runs are remembered, as many as an address can hold", () => {
  let hidden: ReadonlyMap<string, string> = new Map();
  for (let i = 0; i < MOST_HIDDEN + 5; i++) hidden = withRun(hidden, line(`run-${i}`), true);
  assert.deepEqual([hidden.size, [...hidden.keys()][0]], [MOST_HIDDEN, "run-5"]);
});

test("an address that was tampered with is read as far as it makes sense", () => {
  const state = parseState("x=elsewhere&zoom=9~1&smooth=7&sort=-nothing&log=yes&state=constructor&age=toString");
  assert.deepEqual(state, INITIAL);
  assert.equal(parseState("zoom=1~2").axis, "wall");
});

test("the logdir itself is called by its directory's name", () => {
  assert.deepEqual(
    ["a/b", "."].map((run) => titleOf(run, "/data/runs/exp1/")),
    ["a/b", "exp1"],
  );
  assert.deepEqual(
    ["s3://bucket/runs", "C:\\logs\\x", ".", "/", ""].map((logdir) => titleOf(".", logdir)),
    ["runs", "x", ".", ".", "."],
  );
});

test("a time in which the process did not run is told with its cause", () => {
  const run = detail({ silences: [{ session: "s2", since: T0, until: T0 + 50, secs: 50, why: "it was stopped" }] });
  const said = headline(run, [], T0 + 5000).map((s) => `${s.lead}: ${s.rest}`);
  assert.ok(said.includes("Silent for 50 s: the process did not run: it was stopped"), said.join("\n"));
});

test("the time zone is named by its distance from UTC", () => {
  const before = process.env.TZ;
  const zones = ["UTC", "Asia/Kolkata", "America/New_York"].map((zone) => {
    process.env.TZ = zone;
    return zoneOf(T0);
  });
  if (before === undefined) delete process.env.TZ;
  else process.env.TZ = before;
  assert.deepEqual(zones, ["UTC", "UTC+5:30", "UTC−5"]);
});

test("of a long list only what can be seen is in the page", () => {
  const even = (count: number) => topsOf(Array<number>(count).fill(36));
  assert.deepEqual(visibleRows(3610, 360, even(5000), 2), { first: 98, end: 113 });
  assert.deepEqual(visibleRows(0, 360, even(3)), { first: 0, end: 3 });
  assert.deepEqual(visibleRows(9e9, 360, even(10)), { first: 3, end: 10 });
  assert.deepEqual(visibleRows(0, 360, even(0)), { first: 0, end: 0 });
  assert.deepEqual(
    [scrollToRow(0, 100, 360, even(99)), scrollToRow(50, 0, 360, even(99)), scrollToRow(3, 0, 360, even(99))],
    [0, 1476, null],
  );
  const uneven = topsOf([36, 90, 36, 90]);
  assert.deepEqual(
    [-1, 0, 35, 36, 125, 126, 9e9].map((y) => rowAt(uneven, y)),
    [0, 0, 0, 1, 1, 2, 3],
  );
  assert.deepEqual(visibleRows(40, 60, uneven, 0), { first: 1, end: 2 });
  assert.equal(scrollToRow(3, 0, 200, uneven), 52);
});

test("the newest launch by a restarter is shown until a later one has begun", () => {
  const launch = {
    attempt: 4,
    started: T0 + 4900,
    ended: T0 + 5000,
    cause: "oom",
    action: "restart",
    text: "restarted by tb-supervisor: OOM-killed; attempt 4; next in 8 s",
  };
  const find = (over: object) => headline(detail(over), [], T0 + 5000).find(({ lead }) => lead.startsWith("Launch"));
  assert.deepEqual(find({ launch }), {
    sign: "↻",
    lead: "Launch 4 restarted by tb-supervisor",
    rest: "OOM-killed; attempt 4; next in 8 s",
  });
  const open = { ...launch, text: null, ended: null };
  assert.equal(find({ launch: open })!.rest, "started 2 min ago; no session of it yet");
  assert.equal(find({ launch: { ...open, started: T0 + 1999 } }), undefined);
  assert.equal(find({ launch, findings: [finding({ kind: "restart_loop" })] }), undefined);
});

test("what happened is told in sentences, with what it cost", () => {
  const said = headline(detail(), [], T0 + 5000).map((s) => `${s.lead}: ${s.rest}`);
  assert.deepEqual(said, [
    "Step 900: 2.0 steps/s, last written now",
    "1 restart cost 8 min 20 s: 6 min 40 s down, 100 steps recomputed (1 min 40 s); killed",
    "No good checkpoint: all 3 saves failed",
    "1 stall: 30 s without progress; its stacks are on this page",
  ]);
});

test("values that are not finite are facts, with their tag", () => {
  const values = { values: 10, first_step: 8500, last_step: 119000 };
  const said = (over: object) => {
    const last = headline(detail(over), [], T0 + 5000).at(-1)!;
    return `${last.lead}: ${last.rest}`;
  };
  const tags = ["a", "b", "c", "loss"].map((tag) => ({ tag, ...values }));
  assert.equal(
    said({ nonfinite_tags: tags.slice(0, 1) }),
    "Not finite: a: 10 values are NaN or infinite, steps 8,500 to 119,000",
  );
  assert.equal(said({ nonfinite_tags: tags }), "4 tags with values that are NaN or infinite: a, b, c …");
  assert.match(said({}), /^1 stall/);
  const one = { tag: "x", values: 1, first_step: 7, last_step: 7 };
  assert.equal(said({ nonfinite_tags: [one] }), "Not finite: x: 1 value is NaN or infinite, step 7");
});

test("what findings say is not said again among the facts", () => {
  const risk = { steps: 130, secs: 90, saved_step: 770 };
  const run = detail({ state: "lost", at_risk: risk, problem: "it is damaged", dropped: { events: 400 } });
  const said = headline(run, [], T0 + 5000).map((s) => `${s.lead}: ${s.rest}`);
  assert.equal(said[0], "Step 900: last written now");
  assert.doesNotMatch(said.join(" "), /risk|damaged|400|killed, or|overdue/);
});

test("a run that nobody tells of is not accused of anything", () => {
  const quiet = detail({
    inferred: true,
    state: "unknown",
    restarts: [],
    steps_lost: 0,
    stalls: 0,
    step: null,
    checkpoints: { count: 0, failed: 0, newest_good: null, last_good: null, on_disk: null },
  });
  const said = headline(quiet, [], T0 + 5000);
  assert.equal(said.length, 1);
  assert.match(said[0]!.rest, /does not record how it ended/);
});

test("the parts of the wall time are named, and a new one is not lost", () => {
  const parts = partsOf({
    wall_secs: 100,
    ratio: 0.5,
    inferred: false,
    secs: { stall: 30, productive: 50, other: 0, new_thing: 20 },
  });
  assert.deepEqual(
    parts.map((p) => [p.label, p.share]),
    [
      ["Productive", 0.5],
      ["Stalled", 0.3],
      ["new thing", 0.2],
    ],
  );
});

test("hovering tells what is known, and nothing that is not", () => {
  const hover = sessionHover(session(1, { error: "ValueError: x", inferred: true }));
  assert.equal(hover.title, "✕ Session 1: killed");
  assert.ok(hover.rows.some(([name, value]) => name === "Error" && value === "ValueError: x"));
  assert.match(hover.note!, /Inferred/);
  const stall = {
    session: "s",
    phase: "training",
    since: T0,
    until: null,
    step: 5,
    secs: 60,
    timeout_secs: 30,
    stacks: {},
  };
  assert.ok(stallHover(stall).rows.some(([, value]) => value === "it lasts"));
  const history = {
    name: "summary",
    session: "s",
    interval_secs: 30,
    state: "idle" as const,
    ticks: 2,
    failures: 1,
    last_error: "OSError",
    thinned: false,
    spans: [
      [0, 10, "idle", 0, null],
      [10, 20, "overdue", 7, "late"],
    ] as [number, number, "idle" | "overdue", number, string | null][],
    seen_ticks: [[12, 0.5, false]] as [number, number, boolean][],
  };
  const late = threadHover(history, 12, 1);
  assert.equal(late.title, "! summary: overdue");
  assert.deepEqual(
    late.rows.map(([name]) => name),
    ["Every", "Ticks", "Late by", "✕ Failed tick", "Error"],
  );
});

test("a stall's box says how long it lasted, however narrow it is, and where the process hung if there is room", () => {
  const stacks = {
    worker: ["b.py:1 wait"],
    MainThread: ["/srv/job/train.py:88 main", "/srv/job/input.py:12 next_batch", "/usr/lib/python3.12/queue.py:5 get"],
  };
  const stall = {
    session: "s",
    phase: "training",
    since: T0,
    until: null,
    step: 5,
    secs: 90,
    timeout_secs: 30,
    stacks,
  };
  const labels = stallLabels(stall);
  assert.deepEqual(labels, ["‖ 1 min 30 s training: input.py:12 next_batch", "‖ 1 min 30 s training", "‖ 1 min 30 s"]);
  assert.deepEqual(stallLabels({ ...stall, stacks: {} }), labels.slice(1));
  assert.match(stallLabels({ ...stall, stacks: { other: ["/x/site-packages/a.py:1 f"] } })[0]!, /: a.py:1 f$/);
  assert.ok(stallHover(stall).rows.some(([name, value]) => name === "Line" && value === "input.py:12 next_batch"));
  const verdict = "rank 2 hangs at train.py:14 in stuck; rank 0 waits for it at train.py:25 (backward)";
  assert.ok(stallHover({ ...stall, verdict }).rows.some(([name, value]) => name === "Which one" && value === verdict));

  const recorded = {
    ...stall,
    thread: "worker",
    location: "/srv/job/b.py:1 wait",
    same_frames: true,
    activity: "waits",
  };
  assert.match(stallLabels(recorded)[0]!, /training: b.py:1 wait$/);
  assert.deepEqual(
    stacksInOrder(recorded).map(([thread]) => thread),
    ["worker", "MainThread"],
  );
  assert.deepEqual(
    stacksInOrder(stall).map(([thread]) => thread),
    ["MainThread", "worker"],
  );
  assert.ok(
    stallHover(recorded).rows.some(
      ([name, value]) => name === "It is" && value === "waiting at the same frames 10 s later",
    ),
  );
  assert.equal(secondLook({ ...stall, same_frames: false, activity: "busy" }), "busy at other frames 10 s later");
  assert.equal(secondLook({ ...stall, same_frames: true, activity: null }), "at the same frames 10 s later");
  assert.equal(secondLook({ ...stall, activity: "busy" }), "busy");
  assert.equal(secondLook(stall), null);
  assert.equal(secondLook({ ...stall, blocked_since: 5 }), "blocked: native code holds the interpreter lock");
  assert.equal(ownFrame(stacks.MainThread), 1);
  assert.equal(ownFrame([]), -1);

  const place = (lo: number, hi: number, free: number, next: number) =>
    placeLabel((text) => text.length, labels, { lo, hi }, free, next);
  assert.deepEqual(place(100, 160, 0, 300), { text: labels[0], x: 104 });
  assert.deepEqual(place(100, 130, 0, 300), { text: labels[1], x: 104 });
  assert.deepEqual(place(100, 108, 0, 300), { text: "‖ 1 min 30 s", x: 112 });
  assert.deepEqual(place(100, 108, 0, 120), { text: "‖ 1 min 30 s", x: 84 });
  assert.equal(place(100, 108, 90, 120), null);
});

test("a state that a newer backend says is shown as it is", () => {
  assert.equal(wordOf(RUN_STATES, "paused").label, "paused");
  assert.equal(wordOf(RUN_STATES, "constructor").label, "constructor");
});

test("losses are drawn first, our own telemetry and rates never by themselves", () => {
  const tag = (name: string, points = 10): Tag => ({ tag: name, points, first_step: 0, last_step: 1, last_value: 0 });
  const tags = ["global_step/sec", "train/acc", "lr", "weights/norm", "val/loss", "loss", "once"].map((n) =>
    tag(n, n === "once" ? 1 : 10),
  );
  assert.deepEqual(defaultTags(tags), ["loss", "val/loss", "train/acc"]);
  assert.deepEqual(defaultTags([tag("global_step/sec")]), ["global_step/sec"]);
});

test("a sparkline starts at 0, leaves gaps, and is nothing for a single reading", () => {
  assert.equal(sparkline([1], 10, 10), "");
  assert.equal(sparkline([2, null, 1, 1], 30, 10), "M0 1M20 5L30 5");
  assert.equal(sparkline([0, 0], 10, 10), "M0 9L10 9");
});

test("steps recomputed after a kill are told with their bounds", () => {
  assert.deepEqual(
    [formatAtLeast(40, 40), formatAtLeast(40, 52), formatAtLeast(40, null)],
    ["40", "40 to 52", "at least 40"],
  );
  const said = headline(detail({ steps_lost: 100, steps_lost_most: 130 }), [], T0 + 5000)
    .map((s) => s.rest)
    .join();
  assert.match(said, /100 to 130 steps recomputed/);
});
