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

export const RUN_STATES: Record<RunState, Word> = {
  failed: { glyph: "✕", label: "failed", tone: "bad", meaning: "An error ended it.", rank: 0 },
  lost: { glyph: "?", label: "lost", tone: "bad", meaning: "No stop record, and no heartbeat or no process.", rank: 1 },
  stalled: { glyph: "‖", label: "stalled", tone: "warn", meaning: "Heartbeats, but no progress.", rank: 2 },
  running: { glyph: "▶", label: "running", tone: "live", meaning: "Making progress.", rank: 3 },
  stopped: { glyph: "■", label: "stopped", tone: "calm", meaning: "It was asked to stop, and did.", rank: 4 },
  completed: { glyph: "✓", label: "completed", tone: "good", meaning: "It came to its end.", rank: 5 },
  unknown: { glyph: "·", label: "unknown", tone: "dim", meaning: "No record of its state; silent.", rank: 6 },
};

export const OUTCOMES: Record<Outcome, Word> = {
  error: { glyph: "✕", label: "failed", tone: "bad", meaning: "An error ended it.", rank: 0 },
  lost: { glyph: "✕", label: "killed", tone: "bad", meaning: "No stop record: killed, or its machine died.", rank: 1 },
  signal: { glyph: "↯", label: "signal", tone: "warn", meaning: "It shut down cleanly after a signal.", rank: 2 },
  running: { glyph: "▶", label: "running", tone: "live", meaning: "Making progress.", rank: 3 },
  requested: { glyph: "■", label: "stopped", tone: "calm", meaning: "It was asked to stop, and did.", rank: 4 },
  exhausted: { glyph: "✓", label: "input ended", tone: "good", meaning: "Its input came to its end.", rank: 5 },
  completed: { glyph: "✓", label: "completed", tone: "good", meaning: "It came to its end.", rank: 5 },
  unknown: { glyph: "·", label: "not known", tone: "dim", meaning: "How it ended is not recorded.", rank: 6 },
};

/** What a restarter knows better than the session that it ended, or that was killed. */
const LAUNCH_CAUSES: Record<string, Word> = {
  hang: {
    glyph: "‖",
    label: "hung",
    tone: "bad",
    meaning: "It made no progress, and tb-supervisor run ended it.",
    rank: 0,
  },
  oom: { glyph: "✕", label: "OOM-killed", tone: "bad", meaning: "The kernel killed it for want of memory.", rank: 1 },
  preempted: { glyph: "↯", label: "preempted", tone: "warn", meaning: "A SIGTERM from outside ended it.", rank: 2 },
};

/** Why a session was restarted: by its restarter, else by how it ended. */
export function reasonOf({ reason, launch }: Restart): Word {
  const cause = launch?.cause ?? "";
  return isWord(LAUNCH_CAUSES, cause) ? (LAUNCH_CAUSES[cause] as Word) : wordOf(OUTCOMES, reason);
}

export const THREAD_STATES: Record<ThreadState, Word> = {
  failed: { glyph: "✕", label: "failed", tone: "bad", meaning: "It ended by an error, or keeps failing.", rank: 0 },
  overdue: { glyph: "!", label: "overdue", tone: "warn", meaning: "It is late by more than its interval.", rank: 1 },
  ticking: { glyph: "▶", label: "at work", tone: "live", meaning: "It is doing its work.", rank: 2 },
  starting: { glyph: "…", label: "starting", tone: "dim", meaning: "It has not done anything yet.", rank: 3 },
  idle: { glyph: "·", label: "waiting", tone: "calm", meaning: "It waits for its next turn.", rank: 4 },
  stopped: { glyph: "■", label: "stopped", tone: "dim", meaning: "It has ended as asked.", rank: 5 },
};

export const WORKER_STATES: Record<WorkerState, Word> = {
  failed: { glyph: "✕", label: "failed", tone: "bad", meaning: "An error ended it.", rank: 0 },
  lost: { glyph: "?", label: "lost", tone: "bad", meaning: "No heartbeat: killed, or cut off.", rank: 1 },
  stalled: { glyph: "‖", label: "stalled", tone: "warn", meaning: "Heartbeats, but no progress.", rank: 2 },
  waiting: { glyph: "…", label: "waiting", tone: "calm", meaning: "It waits, and does no steps.", rank: 3 },
  running: { glyph: "▶", label: "running", tone: "live", meaning: "Making progress.", rank: 4 },
  stopped: { glyph: "■", label: "stopped", tone: "dim", meaning: "It has ended without an error.", rank: 5 },
};

/** A word for what a newer backend may say. */
export function wordOf<K extends string>(words: Record<K, Word>, key: string): Word {
  return isWord(words, key) ? words[key] : { glyph: "·", label: key, tone: "dim", meaning: "", rank: 9 };
}

/** Whether a key is one of these words, and not something that every object has. */
export function isWord<K extends string>(words: Record<K, unknown>, key: string): key is K {
  return Object.hasOwn(words, key);
}
