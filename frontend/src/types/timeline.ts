/** What the routes `timeline` and `incidents` answer. */
import type { Columns } from "./api";

/** What is drawn of a run; the first five last for a while, the others are moments. */
export type LaneKind =
  | "session"
  | "downtime"
  | "silence"
  | "stall"
  | "finding"
  | "restart"
  | "saves"
  | "recovery"
  | "loss"
  | "completed"
  | "stopped"
  | "failed"
  | "lost";

export interface TimelineHeader {
  at: number;
  from: number | null;
  to: number;
  kinds: LaneKind[];
  /** Kinds that make a run one with an incident: their indices. */
  trouble: number[];
  thinned: boolean;
  runs: string[];
  all_runs: number;
  host: (string | null)[];
  incidents: number[];
  needs_you: number[];
  ahead: [number, number][];
  label_names: string[];
  /** Name, runs with incidents or that need you, the most urgent first, and the others. */
  groups: [string, number[], number[]][];
}

export type TimelineAnswer = Columns<TimelineHeader>;

export interface Happening {
  at: number;
  text: string;
  count: number;
  /** The first of them. */
  runs: string[];
  /** Of several runs that had the same incident at about the same time. */
  together: boolean;
  open: boolean;
}

export interface IncidentsAnswer {
  at: number;
  total: number;
  sentences: Happening[];
}
