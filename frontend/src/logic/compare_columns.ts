/** The columns of the comparison: what of a run stands in each, as a value to sort by and as a text. */
import type { Setting } from "../types/columns";
import type { ComparedRun, TagSummary } from "../types/compare";
import type { Cell } from "./csv";
import { isoMoment } from "./csv";
import { formatCount, formatDuration, formatMoment, formatRate, formatShare, formatValue, UNKNOWN } from "./format";
import { spreadOf } from "./grouping";
import type { Direction } from "./sort";
import { collator, directionOf, settingsOrder } from "./sort";
import type { UrlState } from "./url_state";

export interface CompareColumn {
  key: string;
  name: string;
  title: string;
  /** Its name in the answer's `differing`; null where it always stays. */
  differs: string | null;
  value(run: ComparedRun): Setting | null;
  format(value: number): string;
  /** What is said beside the value, or in the place of one that is null. */
  detail?(run: ComparedRun): string;
  /** Names and values in CSV. */
  csv: [string, (run: ComparedRun) => Cell][];
  /** Which of its values is the best. */
  best?: Direction;
}

/** All tags whose values are in the answer, in the order in which they were asked for. */
export function tagsOf(runs: readonly ComparedRun[], wanted: readonly string[] | null): string[] {
  const found = new Set(runs.flatMap(({ values }) => Object.keys(values ?? {})));
  const first = (wanted ?? []).filter((tag) => found.has(tag));
  return [...new Set([...first, ...found])];
}

export function compareColumns(runs: readonly ComparedRun[], state: UrlState): CompareColumn[] {
  const tags = tagsOf(runs, state.tags);
  return [
    plain("state", "State", "", (run) => run.state),
    ...tags.flatMap((tag) => tagColumns(tag, directionOf(tag, state.best))),
    ...(tags.length ? [nonfinite(tags)] : []),
    ...settings(runs, "hparams", "Hyperparameter"),
    number("step", "Last step", "", (run) => run.step, formatCount),
    number("steps_per_sec", "Steps/s", "", (run) => run.steps_per_sec, formatRate),
    number("goodput", "Goodput", "Share of the time that went into kept steps", (run) => run.goodput, formatShare),
    number("restarts", "Restarts", "", (run) => run.restarts, formatCount),
    number("lost_secs", "Lost", "Time that did not go into kept steps", (run) => run.lost_secs, formatDuration),
    number("duration_secs", "Duration", "Since its first start", (run) => run.duration_secs, formatDuration),
    {
      ...number("started", "Started", "", (run) => run.started, formatMoment),
      csv: [["started", (run) => isoMoment(run.started)]],
    },
    plain("host", "Host", "Of its newest session", (run) => run.host),
    ...settings(runs, "labels", "Label"),
    ...settings(runs, "recorded", "Recorded by the run"),
    ...settings(runs, "versions", "Version of a package"),
  ];
}

function plain(key: string, name: string, title: string, value: (run: ComparedRun) => Setting | null): CompareColumn {
  return { key, name, title, differs: key, value, format: formatValue, csv: [[key, value]] };
}

const number = (
  key: string,
  name: string,
  title: string,
  value: (run: ComparedRun) => number | null,
  format: (value: number) => string,
): CompareColumn => ({ ...plain(key, name, title, value), format });

/** What is there under a name: not what every object has. */
const own = <T>(from: Readonly<Record<string, T>> | null | undefined, name: string): T | undefined =>
  from && Object.hasOwn(from, name) ? from[name] : undefined;

type Mapped = "hparams" | "labels" | "recorded" | "versions";

function settings(runs: readonly ComparedRun[], field: Mapped, title: string): CompareColumn[] {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run[field] ?? {})))].sort(collator.compare);
  return names.map((name) => {
    const column = plain(`${field}.${name}`, name, `${title}: ${name}`, (run) => own(run[field], name) ?? null);
    return { ...column, format: settingText };
  });
}

/** A number of a configuration, in full. */
const settingText = (value: number): string => String(value);

function tagColumns(tag: string, best: Direction): CompareColumn[] {
  const of = (run: ComparedRun): TagSummary | undefined => own(run.values, tag);
  const word = best === "min" ? "lowest" : "highest";
  const [value, step]: ["min" | "max", "min_step" | "max_step"] = [best, `${best}_step`];
  return [
    {
      ...number(`last:${tag}`, `${tag}, last`, "Its last kept value", (run) => of(run)?.last ?? null, formatValue),
      differs: null,
      detail: (run) => (of(run)?.last === null && of(run)?.last_step !== null ? "not finite" : ""),
      csv: [
        [`${tag} last`, (run) => of(run)?.last],
        [`${tag} last step`, (run) => of(run)?.last_step],
      ],
    },
    {
      ...number(`best:${tag}`, `${tag}, ${word}`, `Its ${word} value`, (run) => of(run)?.[value] ?? null, formatValue),
      differs: null,
      detail: (run) => (of(run)?.[step] == null ? "" : `at ${formatCount(of(run)?.[step])}`),
      csv: [
        [`${tag} ${best}`, (run) => of(run)?.[value]],
        [`${tag} ${best} step`, (run) => of(run)?.[step]],
      ],
      best,
    },
  ];
}

/** Of all these tags together; null of a run that has none of them. */
function nonfinite(tags: readonly string[]): CompareColumn {
  const of = (run: ComparedRun): [string, TagSummary][] =>
    Object.entries(run.values ?? {}).filter(([tag]) => tags.includes(tag));
  const count = (run: ComparedRun): number | null =>
    of(run).reduce<number | null>((sum, [, { nonfinite: more }]) => (sum ?? 0) + more, null);
  return {
    ...number("nonfinite", "NaN?", "NaN and infinite values of these tags", count, (value) => (value ? "yes" : "no")),
    differs: null,
    detail: (run) =>
      of(run)
        .filter(([, { nonfinite: count }]) => count)
        .map(([tag, { first_nonfinite_step: step }]) => `${tag} from step ${formatCount(step)}`)
        .join(", "),
    csv: [["nonfinite values", count]],
  };
}

/** What stands in a cell. */
export function shown(column: CompareColumn, value: Setting | null): string {
  if (value === null) return UNKNOWN;
  return typeof value === "number" ? column.format(value) : String(value);
}

/** What stands in the cell of a group: the mean and the range of numbers, or what all have; how many others there are. */
export function shownOfGroup(column: CompareColumn, runs: readonly ComparedRun[]): { text: string; range: string } {
  const values = runs.map(column.value);
  const spread = values.every((value) => value === null || typeof value === "number") ? spreadOf(values) : null;
  const different = new Set(values);
  if (different.size === 1) return { text: shown(column, values[0] ?? null), range: "" };
  if (!spread || column.key === "nonfinite") {
    const bad = column.key === "nonfinite" ? values.filter((value) => Number(value) > 0).length : different.size;
    return { text: column.key === "nonfinite" ? `${bad} of ${runs.length}` : `${bad} values`, range: "" };
  }
  const range = `${column.format(spread.min)} to ${column.format(spread.max)}`;
  const missing = spread.count < runs.length ? `, ${spread.count} of ${runs.length} runs` : "";
  return { text: column.format(spread.mean), range: `${range}${missing}` };
}

/** The best value of a column; null where there is none, or all are the same. */
export function bestOf(column: CompareColumn, runs: readonly ComparedRun[]): number | null {
  const spread = column.best ? spreadOf(runs.map(column.value)) : null;
  if (!spread || !column.best || spread.min === spread.max) return null;
  return spread[column.best];
}

export interface CompareOrder {
  key: string;
  descending: boolean;
}

/** How the rows are sorted: as chosen, else the best of the first tag first; null for the order of choosing. */
export function orderOf(text: string, columns: readonly CompareColumn[]): CompareOrder | null {
  if (text) return { key: text.replace(/^-/, ""), descending: text.startsWith("-") };
  const best = columns.find((column) => column.best !== undefined);
  return best ? { key: best.key, descending: best.best === "max" } : null;
}

/** The rows in their order. What is not known comes last, whichever way round; equal ones stay as they were chosen. */
export function sortCompared(
  runs: readonly ComparedRun[],
  order: CompareOrder | null,
  columns: readonly CompareColumn[],
): ComparedRun[] {
  if (!order) return [...runs];
  const settingOf =
    order.key === "run"
      ? (run: ComparedRun): Setting | null => run.run
      : (columns.find(({ key }) => key === order.key)?.value ?? (() => null));
  const keyed = runs.map((run) => ({ run, value: settingOf(run) }));
  keyed.sort((a, b) => settingsOrder(a.value, b.value, order.descending));
  return keyed.map(({ run }) => run);
}
