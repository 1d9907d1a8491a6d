/** What the route `compare` answers, as tb_plugin/http_api.md has it. Numbers are null where they are not known, or not finite. */
import type { RunState } from "./api";

/** The kept points of a tag in a few numbers. */
export interface TagSummary {
  points: number;
  last: number | null;
  last_step: number | null;
  min: number | null;
  min_step: number | null;
  max: number | null;
  max_step: number | null;
  /** How many values are NaN or infinite. */
  nonfinite: number;
  first_nonfinite_step: number | null;
}

/** A run beside others. */
export interface ComparedRun {
  run: string;
  /** Why there is no such run, or it could not be read, or not in full. */
  problem: string | null;
  state: RunState | null;
  step: number | null;
  steps_per_sec: number | null;
  goodput: number | null;
  restarts: number | null;
  lost_secs: number | null;
  started: number | null;
  duration_secs: number | null;
  host: string | null;
  labels: Record<string, string>;
  hparams?: Record<string, string | number | boolean>;
  versions: Record<string, string>;
  recorded: Record<string, string | number | boolean>;
  /** All it has; null while its scalars are being read. */
  tags: string[] | null;
  /** Of the tags that were asked for; null while its scalars are being read. */
  values: Record<string, TagSummary> | null;
  /** Whether there may be newer scalars than these: they are being read. */
  reading: boolean;
}

export interface CompareAnswer {
  v: number;
  at: number;
  /** In the order in which they were asked for. */
  runs: ComparedRun[];
  /** Columns in which the runs differ: "step", "hparams.lr", "versions.torch". */
  differing: string[];
}
