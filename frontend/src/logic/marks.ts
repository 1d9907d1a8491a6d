/** Checkpoints as marks: at every zoom, as many as there are pixels for. */
import type { Columns, MarksHeader } from "../types/api";
import { column } from "./columns";
import { lowerBound } from "./search";
import type { View } from "./view";
import { toPixel } from "./view";

const GOOD = 1;
const ON_DISK = 2;
const DISK_KNOWN = 4;
const DAMAGED = 16;
const IN_DOUBT = 32;

/** A crowd is cut into pieces no wider than this, each with its own number: where saves are dense is then to be seen. */
const WIDEST_PX = 96;

export interface Marks {
  length: number;
  at: Float64Array;
  step: Float64Array;
  saveSecs: Float64Array;
  blockedSecs: Float64Array;
  bytes: Float64Array;
  flags: Float64Array;
  /** Why saves failed, of the newest ones: by the mark's number. */
  errors: ReadonlyMap<number, string>;
}

/** All marks, from an answer that holds the new ones; null where those before are not the ones that it goes on from. */
export function marksOf(columns: Columns<MarksHeader>, before: Marks | null): Marks | null {
  const { offset, previous, flags, errors } = columns.header;
  const last = offset - 1;
  if (offset > 0) {
    const same = (a: number | undefined, b: number | null | undefined): boolean =>
      a === b || (Number.isNaN(a) && b === null);
    if (!before || before.length < offset || !previous) return null;
    if (!same(before.at[last], previous[0]) || !same(before.step[last], previous[1])) return null;
  }
  const joined = (name: string, old: Float64Array | undefined): Float64Array => {
    const all = new Float64Array(offset + columns.length);
    if (old) all.set(old.subarray(0, offset));
    all.set(column(columns, name), offset);
    return all;
  };
  const all = new Float64Array(offset + columns.length);
  let at = 0;
  for (const [count, value] of flags) {
    all.fill(value, at, at + count);
    at += count;
  }
  return {
    length: all.length,
    at: joined("at", before?.at),
    step: joined("step", before?.step),
    saveSecs: joined("save_secs", before?.saveSecs),
    blockedSecs: joined("blocked_secs", before?.blockedSecs),
    bytes: joined("bytes", before?.bytes),
    flags: all,
    errors: new Map(errors),
  };
}

export const isGood = (flags: number): boolean => (flags & GOOD) !== 0;
/** Whether its files are there; null where not known. */
export const onDisk = (flags: number): boolean | null => (flags & DISK_KNOWN ? (flags & ON_DISK) !== 0 : null);

export const isDamaged = (flags: number): boolean => (flags & DAMAGED) !== 0;
export const isInDoubt = (flags: number): boolean => (flags & IN_DOUBT) !== 0;

/** Marks in the order of an axis. */
export interface PlacedMarks {
  xs: Float64Array;
  /** Which mark each is. */
  index: Int32Array;
}

export function placeMarks(marks: Marks, place: (i: number) => number): PlacedMarks {
  const raw = new Float64Array(marks.length);
  let rising = true;
  for (let i = 0; i < marks.length; i++) {
    raw[i] = place(i);
    if (Number.isNaN(raw[i]) || (i > 0 && (raw[i] as number) < (raw[i - 1] as number))) rising = false;
  }
  const index = new Int32Array(marks.length).map((_, i) => i);
  if (rising) return { xs: raw, index };
  const kept = index
    .filter((i) => !Number.isNaN(raw[i]))
    .sort((a, b) => (raw[a] as number) - (raw[b] as number) || a - b);
  return { xs: Float64Array.from(kept, (i) => raw[i] as number), index: kept };
}

/** Marks that would overlap. */
export interface Cluster {
  /** From the first to the last of them, in pixels. */
  left: number;
  right: number;
  /** Into the placed marks: first, and one past the last. */
  from: number;
  to: number;
  /** How many are on disk, or may be. */
  there: number;
}

/** Good marks and failed ones apart, so that no failure hides in a crowd. */
export function clusterMarks(
  placed: PlacedMarks,
  flags: ArrayLike<number>,
  view: View,
  left: number,
  width: number,
  gap: number,
): { good: Cluster[]; failed: Cluster[] } {
  const good: Cluster[] = [];
  const failed: Cluster[] = [];
  const start = Math.max(0, lowerBound(placed.xs, view.lo) - 1);
  const end = Math.min(placed.xs.length, lowerBound(placed.xs, view.hi) + 1);
  for (let i = start; i < end; i++) {
    const flag = flags[placed.index[i] as number] as number;
    const px = toPixel(placed.xs[i] as number, view, left, width);
    const list = isGood(flag) ? good : failed;
    let last = list[list.length - 1];
    if (!last || px - last.right >= gap || px - last.left >= WIDEST_PX) {
      last = { left: px, right: px, from: i, to: i + 1, there: 0 };
      list.push(last);
    }
    last.right = px;
    last.to = i + 1;
    if (isGood(flag) && onDisk(flag) !== false) last.there++;
  }
  return { good, failed };
}
