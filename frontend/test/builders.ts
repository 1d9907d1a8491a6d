/** Runs, sessions and columns for tests. */
import type {
  Columns,
  Finding,
  Recovery,
  RunDetail,
  RunLine,
  ScalarHeader,
  Session,
  WorkerHistory,
  WorkerSpan,
} from "../src/types/api";

export const T0 = 1_795_222_000;

export function session(n: number, over: Partial<Session> = {}): Session {
  return {
    id: `s${n}`,
    attempt: n,
    started: T0 + n * 1000,
    ended: T0 + n * 1000 + 600,
    first_step: 0,
    last_step: 600,
    steps: 600,
    outcome: "lost",
    inferred: false,
    gone: false,
    resume_exact: null,
    resume_reasons: [],
    resume_check: null,
    error: null,
    signal: null,
    phase: "training",
    host: "h",
    pid: 1,
    facade: "Supervisor",
    restored_checkpoint: null,
    adopted: false,
    skipped_checkpoints: [],
    checkpoint_interval_secs: 100,
    starting_secs: 0,
    restoring_secs: 0,
    progress_timeout_secs: 300,
    last_progress: null,
    world_size: null,
    device_kind: null,
    device_count: null,
    ...over,
  };
}

export function line(run: string, over: Partial<RunLine> = {}): RunLine {
  return {
    run,
    state: "running",
    standing: "fine",
    finding: null,
    more_findings: 0,
    inferred: false,
    phase: "training",
    step: 10,
    steps_per_sec: 1,
    rates: [],
    started: T0,
    last_event: T0 + 10,
    clock_skew_secs: null,
    checkpoint_at: null,
    checkpoint_step: null,
    checkpoint_interval_secs: null,
    restarts: 0,
    recoveries: 0,
    goodput: 0.9,
    stalled_since: null,
    labels: {},
    ...over,
  };
}

export function finding(over: Partial<Finding> = {}): Finding {
  return {
    kind: "stalled",
    severity: "page",
    since: T0,
    text: "No progress.",
    cost: null,
    sentence: "No progress.",
    action: "tb-supervisor stacks -- /runs/a",
    is_command: true,
    alert: "SupervisorTrainingStalled",
    ...over,
  };
}

export function detail(over: Partial<RunDetail> = {}): RunDetail {
  return {
    run: "a",
    at: T0 + 5000,
    generation: 1,
    state: "running",
    findings: [],
    inferred: false,
    labels: {},
    problem: null,
    step: 900,
    steps_per_sec: 2,
    first_step: 0,
    max_step: 900,
    steps_lost: 100,
    steps_lost_most: 100,
    last_event: T0 + 4999,
    clock_skew_secs: null,
    files: 1,
    bytes: 1,
    records: 1,
    corrupt_records: 0,
    nonfinite_tags: [],
    sessions: [session(1), session(2, { first_step: 500, last_step: 900, outcome: "running" })],
    restarts: [
      {
        at: T0 + 2000,
        from_step: 600,
        to_step: 500,
        rewind_steps: 100,
        rewind_steps_most: 100,
        downtime_secs: 400,
        reason: "lost",
        inferred: false,
        from_session: "s1",
        to_session: "s2",
        launch: null,
      },
    ],
    launch: null,
    recoveries: [],
    notices: [],
    at_risk: null,
    silences: [],
    goodput: {
      wall_secs: 1600,
      ratio: 0.5,
      inferred: false,
      secs: { productive: 800, stall: 30, wasted_progress_from_disruption: 100 },
    },
    proposed_interval: null,
    place: null,
    problems: [],
    dropped: {},
    checkpoints: { count: 3, failed: 1, newest_good: null, last_good: null, on_disk: 2 },
    stalls: 1,
    threads: [],
    workers: 0,
    ...over,
  };
}

/** The second session of `detail` was lost once at step 750, and went on from 700. */
export function recovery(over: Partial<Recovery> = {}): Recovery {
  return {
    session: "s2",
    at: T0 + 2400,
    secs: 40,
    error: "UnavailableError: Socket closed",
    losses: 2,
    from_step: 750,
    to_step: 700,
    rewind_steps: 50,
    restored_checkpoint: "model.ckpt-700",
    ...over,
  };
}

/** A worker whose states follow each other every hundred seconds from the second session's start on. */
export function worker(name: string, states: WorkerSpan[2][], over: Partial<WorkerHistory> = {}): WorkerHistory {
  const at = (i: number): number => T0 + 2000 + 100 * i;
  const state = states.at(-1) ?? "running";
  const sick = ["failed", "lost", "stalled"].includes(state);
  return {
    name,
    session: "s2",
    state,
    present: true,
    sick,
    starts: 1,
    last_seen: at(states.length),
    phase: "training",
    waiting_for: null,
    step: 900,
    steps: 400,
    host: `${name}.train`,
    pid: 7,
    error: null,
    thinned: false,
    spans: states.map((state, i): WorkerSpan => [at(i), at(i + 1), state, T0, false, null]),
    ...over,
  };
}

/** Bytes as the backend sends them. */
export function encode(header: object, columns: Record<string, number[]>): ArrayBuffer {
  const names = Object.keys(columns);
  const length = names.length ? (columns[names[0] as string] as number[]).length : 0;
  let text = JSON.stringify({ v: 1, ...header, length, columns: names });
  while ((4 + text.length) % 8) text += " ";
  const buffer = new ArrayBuffer(4 + text.length + 8 * length * names.length);
  new DataView(buffer).setUint32(0, text.length, true);
  new Uint8Array(buffer, 4, text.length).set(new TextEncoder().encode(text));
  for (const [i, name] of names.entries()) {
    new Float64Array(buffer, 4 + text.length + 8 * length * i, length).set(columns[name] as number[]);
  }
  return buffer;
}

export function scalars(
  segments: ScalarHeader["segments"],
  points: [wall: number, step: number, value: number, segment: number][],
): Columns<ScalarHeader> {
  const at = (i: number): Float64Array => Float64Array.from(points, (point) => point[i] as number);
  return {
    header: { points: points.length, thinned: false, segments },
    length: points.length,
    columns: { wall: at(0), step: at(1), value: at(2), segment: at(3) },
  };
}
