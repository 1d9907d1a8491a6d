/** What the backend answers, as tb_plugin/http_api.md has it. Moments are seconds since the epoch. */

export type RunState = "running" | "stalled" | "lost" | "stopped" | "completed" | "failed" | "unknown";

export type Outcome = "running" | "lost" | "completed" | "exhausted" | "requested" | "signal" | "error" | "unknown";

export type ThreadState = "starting" | "idle" | "ticking" | "overdue" | "failed" | "stopped";

export type WorkerState = "waiting" | "running" | "stalled" | "lost" | "stopped" | "failed";

/** What a run is to the one who looks after it. */
export type Standing = "needs_you" | "fine" | "over" | "unknown";

export type Severity = "page" | "warn" | "info";

/** One thing that is to be said of a run. */
export interface Finding {
  kind: string;
  severity: Severity;
  since: number | null;
  text: string;
  /** What it costs by now. */
  cost: string | null;
  /** Text and cost. */
  sentence: string;
  /** What to do first: one sentence, or one command. */
  action: string | null;
  is_command: boolean;
  /** Whose entry in the runbook applies. */
  alert: string | null;
}

/** A run in the overview: one line. */
export interface RunLine {
  run: string;
  state: RunState;
  standing: Standing;
  /** The worst; null where there is none, or they are not known. */
  finding: Finding | null;
  /** How many there are besides; null where they are not known. */
  more_findings: number | null;
  inferred: boolean;
  phase: string | null;
  step: number | null;
  steps_per_sec: number | null;
  rates: (number | null)[];
  started: number | null;
  last_event: number | null;
  /** By how much the clock of its machine is ahead, by which its times are; null where that is not known. */
  clock_skew_secs: number | null;
  checkpoint_at: number | null;
  checkpoint_step: number | null;
  checkpoint_interval_secs: number | null;
  restarts: number;
  /** Restarts within a session. */
  recoveries: number;
  goodput: number | null;
  stalled_since: number | null;
  /** Whose it is, and where it runs, by name. */
  labels: Record<string, string>;
}

export interface RunsAnswer {
  v: number;
  at: number;
  generation: number;
  /** Whether `runs` are all there are. */
  full: boolean;
  logdir: string;
  reading: { done: number; total: number } | null;
  problems: string[];
  removed: string[];
  runs: RunLine[];
}

export interface Session {
  id: string;
  attempt: number;
  started: number | null;
  ended: number | null;
  first_step: number | null;
  last_step: number | null;
  steps: number | null;
  outcome: Outcome;
  inferred: boolean;
  error: string | null;
  signal: string | null;
  phase: string | null;
  host: string | null;
  pid: number | null;
  facade: string | null;
  restored_checkpoint: string | null;
  /** Its process is known to be over, though no record says how it ended. */
  gone: boolean;
  /** Whether it goes on exactly as the run would have without the restart; null where that is not known. */
  resume_exact: boolean | null;
  /** Why it does not, or may not. */
  resume_reasons: string[];
  /** What the steps show that it recomputed; null where no logged value was compared. `tag`: the first that differs. */
  resume_check: { text: string; tag: string | null } | null;
  /** Its model was found alive in the cluster, and kept. */
  adopted: boolean;
  skipped_checkpoints: { path: string; reason: string }[];
  checkpoint_interval_secs: number | null;
  starting_secs: number | null;
  restoring_secs: number | null;
  progress_timeout_secs: number | null;
  last_progress: number | null;
  /** Processes that train together. */
  world_size: number | null;
  device_kind: string | null;
  /** Of all processes. */
  device_count: number | null;
}

export interface Restart {
  at: number | null;
  from_step: number | null;
  to_step: number | null;
  /** At least, where it was killed. */
  rewind_steps: number | null;
  /** At most; equal where that is exact, null when unknown. */
  rewind_steps_most: number | null;
  downtime_secs: number | null;
  reason: Outcome;
  inferred: boolean;
  from_session: string;
  to_session: string;
  /** The launch that had ended, where tb-supervisor run started the program. */
  launch: Launch | null;
}

/** One run of the program by tb-supervisor run. */
export interface Launch {
  attempt: number;
  started: number | null;
  ended: number | null;
  cause: string | null;
  action: string | null;
  /** How it ended and what followed, in one line; null while it runs. */
  text: string | null;
}

/** A restart within a session. */
export interface Recovery {
  session: string;
  /** When training could go on, `secs` after the loss. */
  at: number;
  secs: number;
  error: string;
  losses: number;
  from_step: number | null;
  to_step: number | null;
  rewind_steps: number | null;
  restored_checkpoint: string | null;
}

/** What the program said of its run. */
export interface Notice {
  severity: Severity;
  text: string;
  count: number;
  since: number;
  at: number;
  step: number | null;
  worker: string | null;
}

export interface Checkpoint {
  session: string;
  step: number | null;
  path: string | null;
  at: number | null;
  ok: boolean;
  on_disk: boolean | null;
  bytes: number | null;
  save_secs: number | null;
  blocked_secs: number | null;
  trigger: string | null;
  error: string | null;
  /** What it is now, in words: "on disk", "deleted", "damaged, set aside: ..."; empty where that is not known. */
  status: string;
  /** Why the model in it may be spoiled. */
  doubt: string | null;
  /** Why a resume from it is not exact: what it does not have. */
  not_captured: string[];
  /** What was wrong with it when a later session passed it over. */
  damage: string | null;
  moved_to: string | null;
  consistent: boolean | null;
  verified: boolean | null;
  inferred: boolean;
}

export interface CheckpointPage {
  total: number;
  offset: number;
  checkpoints: Checkpoint[];
}

export interface Goodput {
  wall_secs: number;
  ratio: number | null;
  inferred: boolean;
  secs: Record<string, number>;
}

export interface FileProblem {
  path: string;
  offset: number | null;
  kind: string;
  text: string;
}

/** A stretch of a session in which its process did not run. */
export interface Silence {
  session: string;
  since: number;
  until: number;
  secs: number;
  /** In words. */
  why: string;
}

/** Values of one tag that are NaN or infinite. */
export interface NonFinite {
  tag: string;
  values: number;
  first_step: number;
  last_step: number;
}

/** Steps that are in no checkpoint, of a run that came to a bad end. */
export interface AtRisk {
  steps: number;
  secs: number;
  saved_step: number | null;
}

/** One run, apart from what grows without bound. */
export interface RunDetail {
  run: string;
  at: number;
  generation: number;
  state: RunState;
  /** Worst first; null where they are not known. */
  findings: Finding[] | null;
  inferred: boolean;
  /** Those of its newest session that has any; with `run`, where metrics and alerts have another name for it. */
  labels: Record<string, string>;
  problem: string | null;
  step: number | null;
  steps_per_sec: number | null;
  first_step: number | null;
  max_step: number | null;
  steps_lost: number;
  steps_lost_most: number | null;
  last_event: number | null;
  /** By how much the clock of its machine is ahead, by which its times are; null where that is not known. */
  clock_skew_secs: number | null;
  files: number;
  bytes: number;
  records: number;
  corrupt_records: number;
  nonfinite_tags: NonFinite[];
  sessions: Session[];
  restarts: Restart[];
  /** The newest; null without tb-supervisor run. */
  launch: Launch | null;
  recoveries: Recovery[];
  notices: Notice[];
  goodput: Goodput;
  at_risk: AtRisk | null;
  silences: Silence[];
  /** Which interval to configure, and why; null where the present one is good enough. */
  proposed_interval: { what: string; why: string } | null;
  /** Processes, devices and host of the newest session; null where nothing is known beside its host. */
  place: string | null;
  problems: FileProblem[];
  /** What was beyond a bound and left out, by kind (docs/limits.md). */
  dropped: Record<string, number>;
  checkpoints: {
    count: number;
    failed: number;
    newest_good: Checkpoint | null;
    last_good: Checkpoint | null;
    on_disk: number | null;
  };
  stalls: number;
  threads: string[];
  workers: number;
}

/** `[since, until, state, overdue_secs, error]` */
export type ThreadSpan = [number, number, ThreadState, number, string | null];
/** `[at, secs, ok]` */
export type ThreadTick = [number, number | null, boolean];

export interface ThreadHistory {
  name: string;
  session: string;
  interval_secs: number | null;
  state: ThreadState;
  ticks: number;
  failures: number;
  last_error: string | null;
  thinned: boolean;
  spans: ThreadSpan[];
  seen_ticks: ThreadTick[];
}

/** `[since, until, state, started, again, error]`: since when its process runs, and whether that is another than before. */
export type WorkerSpan = [number, number, WorkerState, number | null, boolean, string | null];

/** Another process of the cluster. */
export interface WorkerHistory {
  name: string;
  /** The last session that reported it. */
  session: string | null;
  state: WorkerState;
  /** Whether the newest session still reports it. */
  present: boolean;
  /** Whether somebody should look at it now. */
  sick: boolean;
  /** How many processes of this name were seen. */
  starts: number;
  last_seen: number | null;
  phase: string | null;
  waiting_for: string | null;
  step: number | null;
  steps: number | null;
  host: string | null;
  pid: number | null;
  error: string | null;
  /** Where it is while it makes no progress. */
  place?: { location: string | null; waits_in: string | null } | null;
  thinned: boolean;
  spans: WorkerSpan[];
}

export interface Stall {
  /** The service whose tick did not end; null if the session made no progress. */
  service?: string | null;
  session: string;
  phase: string;
  since: number;
  until: number | null;
  step: number | null;
  secs: number;
  timeout_secs: number | null;
  thread?: string | null;
  location?: string | null;
  same_frames?: boolean | null;
  activity?: string | null;
  blocked_since?: number | null;
  /** Of several processes: which one kept the others waiting. */
  verdict?: string | null;
  stacks: Record<string, string[]>;
}

export interface Tag {
  tag: string;
  points: number;
  first_step: number | null;
  last_step: number | null;
  last_value: number | null;
}

export interface ScalarHeader {
  points: number;
  thinned: boolean;
  segments: { session: string | null; abandoned_after_step: number | null }[];
}

/** What is said with the marks of checkpoints. */
export interface MarksHeader {
  /** How many saves the window holds. */
  saves: number;
  /** Whether marks stand for several saves. */
  thinned: boolean;
  /** Why saves failed, of the newest ones: by the mark's number. */
  errors: [number, string][];
}

/** Columns of equal length, by name, and what their header says besides. */
export interface Columns<Header> {
  header: Header;
  length: number;
  columns: Record<string, Float64Array>;
}
