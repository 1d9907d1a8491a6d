/** Checkpoints as marks: at every zoom, as many as there are pixels for. */
import type { Columns, MarksHeader } from "../types/api";
import { column } from "./columns";
import { lowerBound } from "./search";
import type { View } from "./view";
import { toPixel } from "./view";
import type { Stretch } from "./window";

const GOOD = 1;
const ON_DISK = 2;
const DISK_KNOWN = 4;
const DAMAGED = 16;
const IN_DOUBT = 32;

/** A crowd is cut into pieces no wider than this, each with its own number: where saves are dense is then to be seen. */
const WIDEST_PX = 96;

/** Each mark is a save, or stands for several, all good or all failed: then times and sizes are means. */
export interface Marks {
  length: number;
  thinned: boolean;
  at: Float64Array;
  step: Float64Array;
  lastAt: Float64Array;
  lastStep: Float64Array;
  /** How many saves it stands for; how many of them are known to be on disk, and known not to be. */
  count: Float64Array;
  onDisk: Float64Array;
  gone: Float64Array;
  saveSecs: Float64Array;
  blockedSecs: Float64Array;
  bytes: Float64Array;
  flags: Float64Array;
  /** Why saves failed, of the newest ones: by the mark's number. */
  errors: ReadonlyMap<number, string>;
}

export function marksOf(columns: Columns<MarksHeader>): Marks {
  const { thinned, errors } = columns.header;
  const named = (name: string): Float64Array => column(columns, name);
  const flags = named("flags");
  const at = named("at");
  const step = named("step");
  return {
    length: columns.length,
    thinned,
    at,
    step,
    lastAt: thinned ? named("last_at") : at,
    lastStep: thinned ? named("last_step") : step,
    count: thinned ? named("count") : flags.map(() => 1),
    onDisk: thinned ? named("on_disk") : flags.map((flag) => (onDisk(flag) === true ? 1 : 0)),
    gone: thinned ? named("gone") : flags.map((flag) => (onDisk(flag) === false ? 1 : 0)),
    saveSecs: named("save_secs"),
    blockedSecs: named("blocked_secs"),
    bytes: named("bytes"),
    flags,
    errors: new Map(errors),
  };
}

const NAMES = [
  "at",
  "step",
  "lastAt",
  "lastStep",
  "count",
  "onDisk",
  "gone",
  "saveSecs",
  "blockedSecs",
  "bytes",
  "flags",
] as const;

/** The finer marks of a window, and around it those of the whole: none that reaches into it. */
export function refined(whole: Marks, fine: Marks, { by, from, to }: Stretch): Marks {
  if (from === null || to === null) return fine;
  const [first, last] = by === "step" ? [whole.step, whole.lastStep] : [whole.at, whole.lastAt];
  const around: number[] = [];
  for (let i = 0; i < whole.length; i++) if ((last[i] as number) < from || (first[i] as number) > to) around.push(i);
  const columns = Object.fromEntries(
    NAMES.map((name) => {
      const all = new Float64Array(fine.length + around.length);
      all.set(fine[name]);
      for (const [at, i] of around.entries()) all[fine.length + at] = whole[name][i] as number;
      return [name, all];
    }),
  ) as Pick<Marks, (typeof NAMES)[number]>;
  const errors = new Map(fine.errors);
  for (const [at, i] of around.entries()) {
    const error = whole.errors.get(i);
    if (error !== undefined) errors.set(fine.length + at, error);
  }
  return { ...columns, length: fine.length + around.length, thinned: true, errors };
}

export const isGood = (flags: number): boolean => (flags & GOOD) !== 0;
/** Whether its files are there; null where not known. */
export const onDisk = (flags: number): boolean | null => (flags & DISK_KNOWN ? (flags & ON_DISK) !== 0 : null);

export const isDamaged = (flags: number): boolean => (flags & DAMAGED) !== 0;
export const isInDoubt = (flags: number): boolean => (flags & IN_DOUBT) !== 0;

/** Marks in the order of an axis. */
export interface PlacedMarks {
  xs: Float64Array;
  /** Where the last save of each is. */
  lastXs: Float64Array;
  /** The longest stretch that one mark takes. */
  reach: number;
  /** Which mark each is. */
  index: Int32Array;
}

export function placeMarks(marks: Marks, place: (at: number, step: number) => number): PlacedMarks {
  const raw = new Float64Array(marks.length);
  let rising = true;
  for (let i = 0; i < marks.length; i++) {
    raw[i] = place(marks.at[i] as number, marks.step[i] as number);
    if (Number.isNaN(raw[i]) || (i > 0 && (raw[i] as number) < (raw[i - 1] as number))) rising = false;
  }
  let index = new Int32Array(marks.length).map((_, i) => i);
  if (!rising) {
    index = index.filter((i) => !Number.isNaN(raw[i])).sort((a, b) => (raw[a] as number) - (raw[b] as number) || a - b);
  }
  const xs = rising ? raw : Float64Array.from(index, (i) => raw[i] as number);
  let reach = 0;
  const lastXs = Float64Array.from(index, (mark, i) => {
    const first = xs[i] as number;
    const last =
      (marks.count[mark] as number) > 1 ? place(marks.lastAt[mark] as number, marks.lastStep[mark] as number) : first;
    const own = Math.max(0, last - first || 0);
    reach = Math.max(reach, own);
    return first + own;
  });
  return { xs, lastXs, reach, index };
}

/** Marks that would overlap. */
export interface Cluster {
  /** From the first to the last of them, in pixels. */
  left: number;
  right: number;
  /** Into the placed marks: first, and one past the last. */
  from: number;
  to: number;
  /** How many saves they are. */
  count: number;
  /** How many of these are on disk, or may be. */
  there: number;
}

/** Good marks and failed ones apart, so that no failure hides in a crowd. */
export function clusterMarks(
  placed: PlacedMarks,
  marks: Marks,
  view: View,
  left: number,
  width: number,
  gap: number,
): { good: Cluster[]; failed: Cluster[] } {
  const good: Cluster[] = [];
  const failed: Cluster[] = [];
  const start = Math.max(0, lowerBound(placed.xs, view.lo - placed.reach) - 1);
  const end = Math.min(placed.xs.length, lowerBound(placed.xs, view.hi) + 1);
  for (let i = start; i < end; i++) {
    const mark = placed.index[i] as number;
    const px = toPixel(placed.xs[i] as number, view, left, width);
    const list = isGood(marks.flags[mark] as number) ? good : failed;
    let last = list[list.length - 1];
    if (!last || px - last.right >= gap || px - last.left >= WIDEST_PX) {
      last = { left: px, right: px, from: i, to: i + 1, count: 0, there: 0 };
      list.push(last);
    }
    last.right = Math.max(last.right, toPixel(placed.lastXs[i] as number, view, left, width));
    last.to = i + 1;
    last.count += marks.count[mark] as number;
    last.there += (marks.count[mark] as number) - (marks.gone[mark] as number);
  }
  return { good, failed };
}
