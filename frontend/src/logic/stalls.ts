/** What a stall's box says, and where its process hung. */
import type { Stall } from "../types/api";
import { formatDuration } from "./format";

const MAIN_THREAD = "MainThread";

/** Python's library, an installed package, or the supervisor itself. */
const LIBRARY = /[\\/](lib(64)?[\\/]python3[^\\/]*|site-packages|dist-packages|supervisor_core)[\\/]|^<frozen /;

/** Where the main thread waits, or else the first one: the innermost line of the program's own, or else the innermost.
 * Without the file's directories. Null where no stack was taken. */
export function innermost(stall: Stall): string | null {
  const stack = stall.stacks[MAIN_THREAD] ?? Object.values(stall.stacks)[0] ?? [];
  const line = stack.filter((each) => !LIBRARY.test(each)).at(-1) ?? stack.at(-1);
  return line?.replace(/^.*[\\/]/, "") ?? null;
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
