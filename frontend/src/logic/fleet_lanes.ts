/** Lanes of all runs over the same time, and the rows that they and their groups are drawn in. */
import type { LaneKind, TimelineAnswer, TimelineHeader } from "../types/timeline";
import { column } from "./columns";
import { plural } from "./format";
import { lowerBound } from "./search";
import type { View } from "./view";

/** A thing drawn in a lane. */
export interface Item {
  kind: LaneKind;
  since: number;
  until: number;
}

export interface FleetLane {
  run: string;
  host: string | null;
  /** By how many seconds the clock of its machine is ahead. */
  ahead: number;
  needsYou: boolean;
  /** None: it is healthy. */
  incidents: number;
  items: readonly Item[];
}

/** A run, or what is written above runs. */
export interface FleetRow {
  lane: FleetLane | null;
  text: string;
  /** The group whose healthy runs it shows, or folds away; null where it does not. */
  fold: string | null;
}

export function lanesOf(answer: TimelineAnswer): FleetLane[] {
  const { header } = answer;
  const runs = column(answer, "run");
  const value = (name: string, k: number): number => column(answer, name)[k] as number;
  const ahead = new Map(header.ahead);
  const needsYou = new Set(header.needs_you);
  return header.runs.map((name, i) => {
    const items: Item[] = [];
    for (let k = lowerBound(runs, i); runs[k] === i; k++)
      items.push({
        kind: header.kinds[value("kind", k)] as LaneKind,
        since: value("since", k),
        until: value("until", k),
      });
    return {
      run: name,
      host: header.host[i] ?? null,
      ahead: ahead.get(i) ?? 0,
      needsYou: needsYou.has(i),
      incidents: header.incidents[i] ?? 0,
      items,
    };
  });
}

/** What of a lane touches a stretch. */
export const itemsIn = ({ items }: FleetLane, { lo, hi }: View): Item[] =>
  items.filter(({ since, until }) => until >= lo && since <= hi);

/** The rows of the runs that are shown; the healthy ones of a group only where it is unfolded. */
export function fleetRowsOf(
  groups: TimelineHeader["groups"],
  lanes: readonly FleetLane[],
  shown: ReadonlySet<FleetLane>,
  unfolded: readonly string[],
): FleetRow[] {
  const rows: FleetRow[] = [];
  for (const [key, ...halves] of groups) {
    const [troubled, healthy] = halves.map((half) =>
      half.map((i) => lanes[i] as FleetLane).filter((lane) => shown.has(lane)),
    ) as [FleetLane[], FleetLane[]];
    const add = (each: FleetLane[]): void => {
      for (const lane of each) rows.push({ lane, text: lane.run, fold: null });
    };
    const count = troubled.length;
    if (count && groups.length > 1)
      rows.push({
        lane: null,
        text: `${key || "Others"}: ${count} of ${plural(count + healthy.length, "run")} to look at`,
        fold: null,
      });
    add(troubled);
    if (!healthy.length) continue;
    const open = unfolded.includes(key);
    const name = key && !count ? `${key}: ` : "";
    rows.push({
      lane: null,
      text: `${open ? "▾" : "▸"} ${name}${plural(healthy.length, "run")} without incident`,
      fold: key,
    });
    if (open) add(healthy);
  }
  return rows;
}
