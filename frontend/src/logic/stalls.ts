/** What a stall's box says, and where its process hung. */
import type { Stall } from "../types/api";
import { formatDuration } from "./format";

const MAIN_THREAD = "MainThread";

/** Python's library, an installed package, or the supervisor itself. */
const LIBRARY = /[\\/](lib(64)?[\\/]python3[^\\/]*|site-packages|dist-packages|supervisor_core)[\\/]|^<frozen /;

/** The thread that made no progress: as recorded, or else the main one, or else the first. Null where there is none. */
export function stalledThread(stall: Stall): string | null {
  return stall.thread ?? (MAIN_THREAD in stall.stacks ? MAIN_THREAD : (Object.keys(stall.stacks)[0] ?? null));
}

/** The index of the innermost frame that is the program's own, or else of the innermost. -1 without frames. */
export function ownFrame(frames: readonly string[]): number {
  const own = frames.findLastIndex((each) => !LIBRARY.test(each));
  return own >= 0 ? own : frames.length - 1;
}

/** Where that thread is: as recorded, or else by its stack. Without the file's directories. Null where that is not
 * known. */
export function innermost(stall: Stall): string | null {
  const frames = stall.stacks[stalledThread(stall) ?? ""] ?? [];
  const line = stall.location ?? frames[ownFrame(frames)];
  return line?.replace(/^.*[\\/]/, "") ?? null;
}

/** What a second look found: at the same frames or at others, busy or waiting; or that no thread could run. Null where
 * that is not known. The same frames twice alone do not show that a thread is stuck. */
export function secondLook(stall: Stall): string | null {
  if (stall.blocked_since != null) return "blocked: native code holds the interpreter lock";
  const does = { busy: "busy", waits: "waiting" }[stall.activity ?? ""];
  if (stall.same_frames == null) return does ?? null;
  return `${does ? `${does} ` : ""}at ${stall.same_frames ? "the same" : "other"} frames 10 s later`;
}

/** The stacks, that of the stalled thread first. */
export function stacksInOrder(stall: Stall): [string, string[]][] {
  const first = stalledThread(stall);
  const all = Object.entries(stall.stacks);
  return [...all.filter(([thread]) => thread === first), ...all.filter(([thread]) => thread !== first)];
}

/** The box's label, the longest first: the last is short enough for most boxes. */
export function stallLabels(stall: Stall): string[] {
  const lasted = `‖ ${formatDuration(stall.secs)}`;
  const line = innermost(stall);
  return [...(line ? [`${lasted} ${stall.phase}: ${line}`] : []), `${lasted} ${stall.phase}`, lasted];
}

const GAP_PX = 4;

/** Which label is written where. Inside the box the longest that fits; where none does, the shortest one beside it. Null
 * where there is no room at all. */
export function placeLabel(
  widthOf: (text: string) => number,
  labels: readonly string[],
  box: { lo: number; hi: number },
  free: number,
  next: number,
): { text: string; x: number } | null {
  const inside = labels.find((text) => widthOf(text) <= box.hi - box.lo - 2 * GAP_PX);
  if (inside !== undefined) return { text: inside, x: box.lo + GAP_PX };
  const text = labels.at(-1) ?? "";
  const size = widthOf(text);
  if (box.hi + GAP_PX + size + GAP_PX <= next) return { text, x: box.hi + GAP_PX };
  const x = box.lo - GAP_PX - size;
  return x >= free + GAP_PX ? { text, x } : null;
}
