/** What is drawn where: the rows of the timeline, from top to bottom, in pixels. */
import type { Plot } from "./plot";

export type Row =
  | { kind: "labels"; y: number; h: number }
  | { kind: "sessions"; y: number; h: number; barHeight: number }
  | { kind: "checkpoints"; y: number; h: number }
  | { kind: "stalls"; y: number; h: number }
  | { kind: "thread" | "worker"; y: number; h: number; lane: number };

const GAP = 6;

export function rowsOf(plot: Plot): { rows: Row[]; height: number } {
  const rows: Row[] = [];
  let y = 2;
  const add = (row: Row): void => {
    rows.push(row);
    y += row.h + GAP;
  };
  if (plot.boundaries.length || plot.recoveries.length) add({ kind: "labels", y, h: 15 });
  const barHeight = plot.barRows > 3 ? 14 : 22;
  add({ kind: "sessions", y, h: plot.barRows * (barHeight + 2) - 2, barHeight });
  if (plot.marks.length) add({ kind: "checkpoints", y, h: 22 });
  if (plot.stalls.length) add({ kind: "stalls", y, h: 18 });
  for (const lane of plot.lanes.keys()) add({ kind: "thread", y, h: 16, lane });
  if (plot.workerLanes.length) y += GAP;
  for (const lane of plot.workerLanes.keys()) add({ kind: "worker", y, h: 16, lane });
  return { rows, height: y };
}

export function rowAt(rows: readonly Row[], y: number): Row | null {
  return rows.find((row) => y >= row.y - GAP / 2 && y < row.y + row.h + GAP / 2) ?? null;
}

export function rowName(row: Row, plot: Plot): string {
  switch (row.kind) {
    case "labels":
      return "Restarts";
    case "sessions":
      return "Sessions";
    case "checkpoints":
      return "Checkpoints";
    case "stalls":
      return "Stalls";
    case "thread":
      return plot.lanes[row.lane]?.name ?? "";
    case "worker":
      return plot.workerLanes[row.lane]?.name ?? "";
  }
}
