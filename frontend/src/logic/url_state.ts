/** What a link shows a colleague: the run, the axis and its stretch, tags, smoothing, filter and order. */
import type { Standing } from "../types/api";
import type { AxisKind } from "./axis";
import { STANDINGS } from "./findings";
import type { Hidden } from "./hidden";
import { formatHidden, parseHidden } from "./hidden";
import type { Sort } from "./sort";
import { SORT_KEYS } from "./sort";
import { isWord, RUN_STATES } from "./words";

/** What an address calls the ages beyond which runs are hidden, in seconds. */
export const AGES: Readonly<Record<string, number>> = { "24h": 86_400, "7d": 7 * 86_400 };

export interface UrlState {
  run: string | null;
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
  if (state.axis) words.set("x", state.axis);
  if (state.zoom) words.set("zoom", `${round(state.zoom.lo)}~${round(state.zoom.hi)}`);
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

/** Whatever the text holds: what cannot be read is as at first. */
export function parseState(text: string): UrlState {
  const words = new URLSearchParams(text);
  const axis = words.get("x");
  const zoom = (words.get("zoom") ?? "").split("~").map(Number);
  const smoothing = Number(words.get("smooth") ?? 0);
  const sort = words.get("sort") ?? "";
  const key = SORT_KEYS.find((name) => name === sort.replace(/^-/, ""));
  const tags = words.getAll("tag");
  const state = words.get("state") ?? "";
  const standing = words.get("standing") ?? "";
  const age = words.get("age") ?? "";
  const [lo, hi] = zoom;
  const stretch =
    lo !== undefined && hi !== undefined && Number.isFinite(lo) && Number.isFinite(hi) && lo < hi ? { lo, hi } : null;
  return {
    run: words.get("run"),
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
    sort: key ? { key, descending: sort.startsWith("-") } : INITIAL.sort,
  };
}
