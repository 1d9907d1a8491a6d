/** What a link shows a colleague: the run, the axis and its stretch, tags, smoothing, filter and order. */
import type { Standing } from "../types/api";
import type { AxisKind } from "./axis";
import { STANDINGS } from "./findings";
import type { Hidden } from "./hidden";
import { formatHidden, parseHidden } from "./hidden";
import type { Period } from "./period";
import { isPeriod } from "./period";
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
  state: string | null;
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

export const INITIAL: UrlState = {
  run: null,
  view: "list",
  chosen: [],
  baseline: null,
  columns: null,
  group: "",
  onlyDiffering: false,
  without: [],
  best: null,
  compareSort: "",
  lanesBy: "prefix",
  period: "12h",
  stretch: null,
  unfolded: [],
  axis: null,
  zoom: null,
  tags: null,
  smoothing: 0,
  log: false,
  allWorkers: false,
  filter: "",
  state: null,
  standing: null,
  age: null,
  hidden: new Map(),
  showHidden: false,
  sort: { key: "state", descending: false },
};

export function formatState(state: UrlState): string {
  const words = new URLSearchParams();
  if (state.run !== null) words.set("run", state.run);
  if (state.view !== "list") words.set("view", state.view);
  for (const { run, colour } of state.chosen) words.append("with", `${colour}~${run}`);
  if (state.baseline !== null) words.set("base", state.baseline);
  for (const key of state.columns ?? []) words.append("col", key);
  if (state.group) words.set("group", state.group);
  if (state.onlyDiffering) words.set("differ", "1");
  for (const key of state.without) words.append("without", key);
  if (state.best) words.set("best", state.best);
  if (state.compareSort) words.set("by", state.compareSort);
  if (state.lanesBy !== INITIAL.lanesBy) words.set("lanes", state.lanesBy);
  if (state.period !== INITIAL.period) words.set("period", state.period);
  if (state.stretch) words.set("happened", formatStretch(state.stretch));
  for (const key of state.unfolded) words.append("unfold", key);
  if (state.axis) words.set("x", state.axis);
  if (state.zoom) words.set("zoom", formatStretch(state.zoom));
  if (state.tags) {
    if (state.tags.length === 0) words.append("tag", "");
    for (const tag of state.tags) words.append("tag", tag);
  }
  if (state.smoothing > 0) words.set("smooth", String(state.smoothing));
  if (state.log) words.set("log", "1");
  if (state.allWorkers) words.set("workers", "all");
  if (state.filter) words.set("filter", state.filter);
  if (state.state) words.set("state", state.state);
  if (state.standing) words.set("standing", state.standing);
  if (state.age) words.set("age", state.age);
  for (const word of formatHidden(state.hidden)) words.append("hide", word);
  if (state.showHidden) words.set("hidden", "shown");
  const { key, descending } = state.sort;
  if (key !== INITIAL.sort.key || descending) words.set("sort", descending ? `-${key}` : key);
  return words.toString();
}

const round = (x: number): number => Number(x.toPrecision(14));
const formatStretch = ({ lo, hi }: { lo: number; hi: number }): string => `${round(lo)}~${round(hi)}`;

function parseStretch(word: string | null): { lo: number; hi: number } | null {
  const [lo, hi] = (word ?? "").split("~").map(Number);
  return lo !== undefined && hi !== undefined && Number.isFinite(lo) && Number.isFinite(hi) && lo < hi
    ? { lo, hi }
    : null;
}

/** Whatever the text holds: what cannot be read is as at first. */
export function parseState(text: string): UrlState {
  const words = new URLSearchParams(text);
  const axis = words.get("x");
  const smoothing = Number(words.get("smooth") ?? 0);
  const sort = words.get("sort") ?? "";
  const key = sort.replace(/^-/, "");
  const tags = words.getAll("tag");
  const state = words.get("state") ?? "";
  const standing = words.get("standing") ?? "";
  const age = words.get("age") ?? "";
  const view = words.get("view");
  const best = words.get("best");
  const columns = words.getAll("col");
  const stretch = parseStretch(words.get("zoom"));
  const period = words.get("period") ?? "";
  return {
    run: words.get("run"),
    view: view === "compare" || view === "timeline" ? view : "list",
    chosen: parseChosen(words.getAll("with")),
    baseline: words.get("base"),
    columns: columns.length ? columns : null,
    group: words.get("group") ?? "",
    onlyDiffering: words.get("differ") === "1",
    without: words.getAll("without"),
    best: best === "min" || best === "max" ? best : null,
    compareSort: words.get("by") ?? "",
    lanesBy: words.get("lanes") || INITIAL.lanesBy,
    period: isPeriod(period) ? period : INITIAL.period,
    stretch: parseStretch(words.get("happened")),
    unfolded: words.getAll("unfold"),
    // A stretch is on an axis: links from before there was a choice mean wall time.
    axis: axis === "step" || axis === "relative" || axis === "wall" ? axis : stretch ? "wall" : null,
    zoom: stretch,
    tags: tags.length ? tags.filter((tag) => tag !== "") : null,
    smoothing: smoothing >= 0 && smoothing <= 0.999 ? smoothing : 0,
    log: words.get("log") === "1",
    allWorkers: words.get("workers") === "all",
    filter: words.get("filter") ?? "",
    state: isWord(RUN_STATES, state) ? state : null,
    standing: isWord(STANDINGS, standing) ? standing : null,
    age: Object.hasOwn(AGES, age) ? age : null,
    hidden: parseHidden(words.getAll("hide")),
    showHidden: words.get("hidden") === "shown",
    sort: isSortKey(key) ? { key, descending: sort.startsWith("-") } : INITIAL.sort,
  };
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
