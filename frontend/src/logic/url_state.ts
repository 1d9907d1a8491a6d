/** What a link shows a colleague: the run, the axis and its stretch, tags, smoothing, filter and order. */
import type { RunState, Standing } from "../types/api";
import type { AxisKind } from "./axis";
import { STANDINGS } from "./findings";
import type { Hidden } from "./hidden";
import { formatHidden, parseHidden } from "./hidden";
import type { Period } from "./period";
import { PERIODS } from "./period";
import type { Sort } from "./sort";
import { isSortKey } from "./sort";
import { isWord, RUN_STATES } from "./words";

/** What an address calls the ages beyond which runs are hidden, in seconds. */
export const AGES: Readonly<Record<string, number>> = { "24h": 86_400, "7d": 7 * 86_400 };

export type ViewName = "list" | "compare" | "timeline";

/** A run that is compared with others, in its colour: a place in the palette. */
export interface Chosen {
  run: string;
  colour: number;
}

export const MOST_CHOSEN = 50;

export interface UrlState {
  /** The run whose page is shown; null for a view of many. */
  run: string | null;
  /** What is shown of many runs. */
  view: ViewName;
  /** The runs that are compared: at most `MOST_CHOSEN`. */
  chosen: readonly Chosen[];
  /** The run that the others are compared with; null for none. */
  baseline: string | null;
  /** Further columns of the list, by their keys; null for none chosen. */
  columns: readonly string[] | null;
  /** A regular expression that groups the compared runs by what it captures of their names. */
  group: string;
  /** Columns of the comparison only where the runs differ. */
  onlyDiffering: boolean;
  /** Columns that the comparison does not show, by their keys. */
  without: readonly string[];
  /** Which value of a tag is the best; null: by the tag's name. */
  best: "min" | "max" | null;
  /** The column that the comparison is sorted by, with "-" before it where it descends; empty for the best first. */
  compareSort: string;
  /** What groups the lanes of the timeline: "prefix", "host" or "label:<name>". */
  lanesBy: string;
  /** What the timeline shows. */
  period: Period;
  /** The stretch of the timeline of which it is said what happened; null for all of it. */
  stretch: { lo: number; hi: number } | null;
  /** Groups of lanes whose healthy runs are shown, too. */
  unfolded: readonly string[];
  /** null: chosen by how much of the time nothing ran. */
  axis: AxisKind | null;
  /** The stretch shown; null for all of it, new events included. */
  zoom: { lo: number; hi: number } | null;
  /** null for those chosen by us. */
  tags: string[] | null;
  smoothing: number;
  log: boolean;
  /** A lane for each worker, however many. */
  allWorkers: boolean;
  filter: string;
  /** One state only; null for all. */
  state: RunState | null;
  /** How runs are: one standing only; null for all. */
  standing: Standing | null;
  /** Runs last seen longer ago are hidden: a key of `AGES`; null for all. */
  age: string | null;
  /** Runs that are not listed. */
  hidden: Hidden;
  /** List them nevertheless. */
  showHidden: boolean;
  sort: Sort;
}

const round = (x: number): number => Number(x.toPrecision(14));

/** How a field stands in an address. */
interface Codec<T> {
  name: string;
  /** The words for a value; none for the initial one. */
  write(value: T): readonly string[];
  /** The value; the initial one where the words hold none. */
  read(words: string[]): T;
}

const own = <T>(name: string, write: Codec<T>["write"], read: Codec<T>["read"]): Codec<T> => ({ name, write, read });
const text = <I extends string | null>(name: string, initial: I): Codec<string | I> =>
  own<string | I>(
    name,
    (value) => (value === initial ? [] : [value as string]),
    ([word]) => word || initial,
  );
const flag = (name: string, yes = "1"): Codec<boolean> =>
  own(
    name,
    (value) => (value ? [yes] : []),
    ([word]) => word === yes,
  );
const list = (name: string): Codec<readonly string[]> =>
  own(
    name,
    (value) => value,
    (words) => words,
  );
/** A key of the table. */
const oneOf = <T extends string, I extends T | null>(
  name: string,
  table: Record<T, unknown>,
  initial: I,
): Codec<T | I> =>
  own<T | I>(
    name,
    (value) => (value === initial ? [] : [value as T]),
    ([word = ""]) => (isWord(table, word) ? word : initial),
  );
const stretch = (name: string): Codec<{ lo: number; hi: number } | null> =>
  own(
    name,
    (value) => (value ? [`${round(value.lo)}~${round(value.hi)}`] : []),
    ([word = ""]) => {
      const [lo = NaN, hi = NaN] = word.split("~").map(Number);
      return lo < hi && Number.isFinite(hi - lo) ? { lo, hi } : null;
    },
  );

/** In the order in which they stand in an address. */
const FIELDS: { readonly [K in keyof UrlState]: Codec<UrlState[K]> } = {
  run: text("run", null),
  view: oneOf("view", { list: 0, compare: 0, timeline: 0 }, "list"),
  chosen: own("with", (chosen) => chosen.map(({ run, colour }) => `${colour}~${run}`), parseChosen),
  baseline: text("base", null),
  columns: own(
    "col",
    (keys) => keys ?? [],
    (words) => (words.length ? words : null),
  ),
  group: text("group", ""),
  onlyDiffering: flag("differ"),
  without: list("without"),
  best: oneOf("best", { min: 0, max: 0 }, null),
  compareSort: text("by", ""),
  lanesBy: text("lanes", "prefix"),
  period: oneOf("period", PERIODS, "12h"),
  stretch: stretch("happened"),
  unfolded: list("unfold"),
  axis: oneOf("x", { step: 0, relative: 0, wall: 0 }, null),
  zoom: stretch("zoom"),
  tags: own(
    "tag",
    (tags) => (tags?.length === 0 ? [""] : (tags ?? [])),
    (words) => (words.length ? words.filter(Boolean) : null),
  ),
  smoothing: own(
    "smooth",
    (value) => (value > 0 ? [String(value)] : []),
    ([word]) => {
      const value = Number(word);
      return value >= 0 && value <= 0.999 ? value : 0;
    },
  ),
  log: flag("log"),
  allWorkers: flag("workers", "all"),
  filter: text("filter", ""),
  state: oneOf("state", RUN_STATES, null),
  standing: oneOf("standing", STANDINGS, null),
  age: oneOf("age", AGES, null),
  hidden: own("hide", formatHidden, parseHidden),
  showHidden: flag("hidden", "shown"),
  sort: own(
    "sort",
    ({ key, descending }) => (key !== "state" || descending ? [descending ? `-${key}` : key] : []),
    ([word = ""]) => {
      const key = word.replace(/^-/, "");
      return isSortKey(key) ? { key, descending: word !== key } : { key: "state", descending: false };
    },
  ),
};

const CODECS = Object.entries(FIELDS) as [keyof UrlState, Codec<unknown>][];

export function formatState(state: UrlState): string {
  const words = new URLSearchParams();
  for (const [key, { name, write }] of CODECS) for (const word of write(state[key])) words.append(name, word);
  return words.toString();
}

/** Whatever the text holds: what cannot be read is as at first. */
export function parseState(address: string): UrlState {
  const words = new URLSearchParams(address);
  const read = CODECS.map(([key, codec]) => [key, codec.read(words.getAll(codec.name))]);
  const state: UrlState = Object.fromEntries(read);
  // A stretch is on an axis: links from before there was a choice mean wall time.
  if (state.zoom) state.axis ??= "wall";
  return state;
}

function parseChosen(words: readonly string[]): Chosen[] {
  const chosen = new Map<string, Chosen>();
  for (const word of words) {
    const [, colour, run] = /^(\d{1,2})~(.*)$/s.exec(word) ?? [];
    if (run !== undefined && Number(colour) < MOST_CHOSEN && chosen.size < MOST_CHOSEN && !chosen.has(run))
      chosen.set(run, { run, colour: Number(colour) });
  }
  return [...chosen.values()];
}

export const INITIAL = parseState("");
