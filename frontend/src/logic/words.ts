/** What states and outcomes are called, their sign, and the tone they are drawn in. Never the tone alone. */
import type { Outcome, Restart, RunState, ThreadState, WorkerState } from "../types/api";

export type Tone = "good" | "live" | "calm" | "warn" | "bad" | "dim";

export interface Word {
  glyph: string;
  label: string;
  tone: Tone;
  /** One sentence: what it means. */
  meaning: string;
  /** Worst first, for sorting. */
  rank: number;
}

export const word = (glyph: string, label: string, tone: Tone, meaning: string, rank: number): Word => ({
  glyph,
  label,
  tone,
  meaning,
  rank,
});

export const RUN_STATES: Record<RunState, Word> = {
  failed: word("✕", "failed", "bad", "An error ended it.", 0),
  lost: word("?", "lost", "bad", "No stop record, and no heartbeat or no process.", 1),
  stalled: word("‖", "stalled", "warn", "Heartbeats, but no progress.", 2),
  running: word("▶", "running", "live", "Making progress.", 3),
  stopped: word("■", "stopped", "calm", "It was asked to stop, and did.", 4),
  completed: word("✓", "completed", "good", "It came to its end.", 5),
  unknown: word("·", "unknown", "dim", "No record of its state; silent.", 6),
};

export const OUTCOMES: Record<Outcome, Word> = {
  error: word("✕", "failed", "bad", "An error ended it.", 0),
  lost: word("✕", "killed", "bad", "No stop record: killed, or its machine died.", 1),
  signal: word("↯", "signal", "warn", "It shut down cleanly after a signal.", 2),
  running: word("▶", "running", "live", "Making progress.", 3),
  requested: word("■", "stopped", "calm", "It was asked to stop, and did.", 4),
  exhausted: word("✓", "input ended", "good", "Its input came to its end.", 5),
  completed: word("✓", "completed", "good", "It came to its end.", 5),
  unknown: word("·", "not known", "dim", "How it ended is not recorded.", 6),
};

/** What a restarter knows better than the session that it ended, or that was killed. */
const LAUNCH_CAUSES: Record<string, Word> = {
  hang: word("‖", "hung", "bad", "It made no progress, and tb-supervisor run ended it.", 0),
  oom: word("✕", "OOM-killed", "bad", "The kernel killed it for want of memory.", 1),
  preempted: word("↯", "preempted", "warn", "A SIGTERM from outside ended it.", 2),
};

/** Why a session was restarted: by its restarter, else by how it ended. */
export function reasonOf({ reason, launch }: Restart): Word {
  const cause = launch?.cause ?? "";
  return isWord(LAUNCH_CAUSES, cause) ? (LAUNCH_CAUSES[cause] as Word) : wordOf(OUTCOMES, reason);
}

export const THREAD_STATES: Record<ThreadState, Word> = {
  failed: word("✕", "failed", "bad", "It ended by an error, or keeps failing.", 0),
  overdue: word("!", "overdue", "warn", "It is late by more than its interval.", 1),
  ticking: word("▶", "at work", "live", "It is doing its work.", 2),
  starting: word("…", "starting", "dim", "It has not done anything yet.", 3),
  idle: word("·", "waiting", "calm", "It waits for its next turn.", 4),
  stopped: word("■", "stopped", "dim", "It has ended as asked.", 5),
};

export const WORKER_STATES: Record<WorkerState, Word> = {
  failed: word("✕", "failed", "bad", "An error ended it.", 0),
  lost: word("?", "lost", "bad", "No heartbeat: killed, or cut off.", 1),
  stalled: word("‖", "stalled", "warn", "Heartbeats, but no progress.", 2),
  waiting: word("…", "waiting", "calm", "It waits, and does no steps.", 3),
  running: word("▶", "running", "live", "Making progress.", 4),
  stopped: word("■", "stopped", "dim", "It has ended without an error.", 5),
};

/** A word for what a newer backend may say. */
export function wordOf<K extends string>(words: Record<K, Word>, key: string): Word {
  return isWord(words, key) ? words[key] : { glyph: "·", label: key, tone: "dim", meaning: "", rank: 9 };
}

/** Whether a key is one of these words, and not something that every object has. */
export function isWord<K extends string>(words: Record<K, unknown>, key: string): key is K {
  return Object.hasOwn(words, key);
}
