/** Sessions, checkpoints, stalls, service threads and workers over the axis. */

import { formatCount, formatDuration, plural } from "../logic/format";
import type { Hover } from "../logic/hover";
import {
  boundariesHover,
  clusterHover,
  cutHover,
  noticeHover,
  recoveryHover,
  riskHover,
  sessionHover,
  silenceHover,
  stallHover,
  threadHover,
} from "../logic/hover";
import type { Cluster } from "../logic/marks";
import type { Plot } from "../logic/plot";
import { sessionAt } from "../logic/plot";
import type { Row } from "../logic/rows_of_plot";
import { rowAt, rowName, rowsOf } from "../logic/rows_of_plot";
import type { View } from "../logic/view";
import { fromPixel, toPixel } from "../logic/view";
import type { Word } from "../logic/words";
import { WORKER_STATES, wordOf } from "../logic/words";
import { crowdHover, workerHover } from "../logic/worker_hover";
import { sickOnes, troubleWords } from "../logic/workers";
import type { Silence } from "../types/api";
import { Canvas } from "./canvas";
import { fill, h, setAttribute } from "./element";
import type { Frame, PaintedMarks } from "./paint";
import { paintBoundaries, paintCheckpoints, paintLabels, paintSessions, paintStalls } from "./paint";
import { paintThread, paintWorkers } from "./paint_lanes";
import type { Theme } from "./theme";

/** How near the pointer has to be. */
const NEAR_PX = 6;

export class Timeline {
  readonly #canvas = new Canvas("timeline-canvas");
  readonly #names = h("div", { class: "row-names", "aria-hidden": "true" });
  readonly element = h("div", { class: "timeline" }, this.#names, this.#canvas.element);
  #plot: Plot | null = null;
  #rows: Row[] = [];
  #height = 0;
  #painted: PaintedMarks = { good: [], failed: [] };
  #geometry = { left: 0, width: 1 };
  #view: View = { lo: 0, hi: 1 };

  constructor() {
    this.#canvas.element.setAttribute("role", "img");
  }

  setPlot(plot: Plot): void {
    this.#plot = plot;
    const { rows, height } = rowsOf(plot);
    this.#rows = rows;
    this.#height = height;
    fill(
      this.#names,
      ...rows.map((row) => {
        const sick = row.kind === "worker" ? sickWord(row, plot) : null;
        const text = `${sick ? `${sick.glyph} ` : ""}${rowName(row, plot)}`;
        const name = h("div", { class: `row-name${sick ? ` ${sick.tone}-text` : ""}`, title: text }, text);
        name.style.top = `${row.y}px`;
        name.style.height = `${row.kind === "sessions" ? Math.min(row.h, 22) : row.h}px`;
        return name;
      }),
    );
    setAttribute(this.#canvas.element, "aria-label", describe(plot));
  }

  draw(view: View, left: number, width: number, theme: Theme): void {
    if (!this.#plot) return;
    this.#view = view;
    this.#geometry = { left, width };
    const c = this.#canvas.begin(left + width + 1, this.#height);
    const frame: Frame = { c, theme, plot: this.#plot, view, left, width };
    c.save();
    c.beginPath();
    c.rect(left, 0, width + 1, this.#height);
    c.clip();
    for (const row of this.#rows) {
      if (row.kind === "sessions") paintSessions(frame, row);
      else if (row.kind === "stalls") paintStalls(frame, row);
      else if (row.kind === "thread") paintThread(frame, row);
      else if (row.kind === "worker") paintWorkers(frame, row);
    }
    paintBoundaries(frame, 0, this.#height, false);
    for (const row of this.#rows) {
      if (row.kind === "labels") paintLabels(frame, row);
      else if (row.kind === "checkpoints") this.#painted = paintCheckpoints(frame, row);
    }
    c.restore();
  }

  /** What is at a place, in words; null where nothing is. */
  hoverAt(px: number, py: number): Hover | null {
    const plot = this.#plot;
    if (!plot || px < this.#geometry.left - NEAR_PX) return null;
    const row = rowAt(this.#rows, py);
    const x = fromPixel(px, this.#view, this.#geometry.left, this.#geometry.width);
    const own = row && this.#hoverInRow(row, px, py, x, plot);
    if (own) return own;
    const near = this.#nearestMark(px);
    if (near) return near;
    const cut = plot.axis.cuts.find(({ lo, hi }) => x >= lo && x <= hi);
    return cut ? cutHover(cut.secs) : null;
  }

  /** Every mark with a description, by its place on the axis and its height in the drawing, from left to right. */
  marks(): { x: number; py: number }[] {
    const plot = this.#plot;
    if (!plot) return [];
    const { axis } = plot;
    const found: { x: number; py: number }[] = [];
    for (const row of this.#rows) {
      const py = row.y + row.h / 2;
      if (row.kind === "sessions") {
        const top = row.y + Math.min(row.h, row.barHeight) / 2;
        for (const { x } of [...plot.boundaries, ...plot.recoveries, ...plot.notices]) found.push({ x, py: top });
        for (const bar of plot.bars)
          if (bar) found.push({ x: bar.lo, py: row.y + bar.row * (row.barHeight + 2) + row.barHeight / 2 });
        if (axis.kind !== "step")
          for (const silence of plot.detail.silences)
            found.push({ x: axis.ofWall((silence.since + silence.until) / 2), py: top });
      } else if (row.kind === "stalls")
        for (const stall of plot.stalls) found.push({ x: axis.ofWall(stall.since), py });
      else if (row.kind === "checkpoints") {
        const { left, width } = this.#geometry;
        for (const { left: a, right: b } of [...this.#painted.good, ...this.#painted.failed])
          found.push({ x: fromPixel((a + b) / 2, this.#view, left, width), py });
      }
    }
    return found.filter(({ x }) => Number.isFinite(x)).sort((a, b) => a.x - b.x || a.py - b.py);
  }

  /** The stall at a place: its index; -1 where there is none. */
  stallAt(px: number, py: number): number {
    const plot = this.#plot;
    if (!plot || rowAt(this.#rows, py)?.kind !== "stalls") return -1;
    return plot.stalls.findIndex((stall) => {
      const lo = this.#px(plot.axis.ofWall(stall.since));
      const hi = Math.max(this.#px(plot.axis.ofWall(stall.until ?? stall.since + stall.secs)), lo + 8);
      return px >= lo - 2 && px <= hi + 2;
    });
  }

  #hoverInRow(row: Row, px: number, py: number, x: number, plot: Plot): Hover | null {
    switch (row.kind) {
      case "labels":
        return null;
      case "checkpoints": {
        const failed = this.#clusterAt(this.#painted.failed, px);
        if (failed) return clusterHover(failed, plot, true);
        const good = this.#clusterAt(this.#painted.good, px);
        return good ? clusterHover(good, plot, false) : null;
      }
      case "stalls": {
        const stall = plot.stalls[this.stallAt(px, py)];
        return stall ? stallHover(stall) : null;
      }
      case "sessions": {
        const notice = this.#nearest(plot.notices, px, 3);
        if (notice) return noticeHover(notice);
        const mark = this.#nearestMark(px, 3);
        if (mark) return mark;
        const at = Math.floor((py - row.y) / (row.barHeight + 2));
        const i = plot.bars.findIndex(
          (bar) =>
            bar &&
            bar.row === at &&
            px >= this.#px(bar.lo) - 2 &&
            px <= Math.max(this.#px(bar.hi), this.#px(bar.lo) + 2) + 2,
        );
        const session = plot.detail.sessions[i];
        if (!session) return null;
        const silence = plot.axis.kind === "step" ? undefined : this.#silenceAt(px, session.id, plot);
        if (silence) return silenceHover(silence);
        const { risk } = plot;
        const isRisk =
          risk &&
          plot.detail.at_risk &&
          i === plot.bars.length - 1 &&
          px >= this.#px(risk.lo) &&
          px <= this.#px(risk.hi);
        return isRisk && plot.detail.at_risk ? riskHover(plot.detail.at_risk) : sessionHover(session);
      }
      case "thread":
        return this.#threadAt(row.lane, x, plot);
      case "worker":
        return this.#workerAt(row.lane, x, plot);
    }
  }

  #silenceAt(px: number, session: string, plot: Plot): Silence | undefined {
    return plot.detail.silences.find((silence) => {
      const lo = this.#px(plot.axis.ofWall(silence.since));
      return (
        silence.session === session &&
        px >= lo - 2 &&
        px <= Math.max(this.#px(plot.axis.ofWall(silence.until)), lo + 3) + 2
      );
    });
  }

  #workerAt(index: number, x: number, plot: Plot): Hover | null {
    const lane = plot.workerLanes[index];
    const near = ((this.#view.hi - this.#view.lo) / this.#geometry.width) * NEAR_PX;
    const sessions = plot.axis.kind === "step" ? plot.detail.sessions.map((_, i) => i).reverse() : [0];
    for (const session of sessions) {
      const wall = plot.axis.toWall(x) ?? this.#wallOfStep(x, session, plot);
      if (wall === null || (plot.axis.kind === "step" && sessionAt(plot, wall) !== session)) continue;
      const worker = lane?.workers[0];
      const hover = lane?.crowd ? crowdHover(lane, wall, near) : worker ? workerHover(worker, wall, near) : null;
      if (hover) return hover;
    }
    return null;
  }

  #threadAt(lane: number, x: number, plot: Plot): Hover | null {
    const near = ((this.#view.hi - this.#view.lo) / this.#geometry.width) * NEAR_PX;
    for (const { history, session } of plot.lanes[lane]?.histories ?? []) {
      const wall = plot.axis.toWall(x) ?? this.#wallOfStep(x, session, plot);
      const since = history.spans[0]?.[0];
      const until = history.spans.at(-1)?.[1];
      if (since === undefined || until === undefined || wall === null) continue;
      if (wall >= since - near && wall <= until + near) return threadHover(history, wall, near);
    }
    return null;
  }

  #wallOfStep(step: number, session: number, plot: Plot): number | null {
    const way = plot.ways[session];
    if (!way || way.steps.length < 2) return null;
    const first = way.steps[0] as number;
    const last = way.steps.at(-1) as number;
    if (step < first || step > last) return null;
    const i = way.steps.findIndex((s) => s >= step);
    return way.walls[i] ?? null;
  }

  #clusterAt(clusters: readonly Cluster[], px: number): Cluster | null {
    return clusters.find(({ left, right }) => px >= left - NEAR_PX && px <= right + NEAR_PX) ?? null;
  }

  /** A restart, or one within a session. */
  #nearestMark(px: number, near = NEAR_PX): Hover | null {
    const boundary = this.#nearest(this.#plot?.boundaries ?? [], px, near);
    if (boundary) {
      const at = this.#px(boundary.x);
      return boundariesHover((this.#plot?.boundaries ?? []).filter(({ x }) => Math.abs(this.#px(x) - at) < 1));
    }
    const recovery = this.#nearest(this.#plot?.recoveries ?? [], px, near);
    return recovery && recoveryHover(recovery);
  }

  #nearest<Mark extends { x: number }>(marks: readonly Mark[], px: number, near: number): Mark | null {
    let best: Mark | null = null;
    let distance = near;
    for (const mark of marks) {
      const away = Math.abs(this.#px(mark.x) - px);
      if (away <= distance) [best, distance] = [mark, away];
    }
    return best;
  }

  #px(x: number): number {
    return toPixel(x, this.#view, this.#geometry.left, this.#geometry.width);
  }
}

/** What a lane's worker is at, where somebody should look at it. */
function sickWord(row: Row & { kind: "thread" | "worker" }, plot: Plot): Word | null {
  const lane = plot.workerLanes[row.lane];
  const sick = lane && !lane.crowd ? lane.workers.find((worker) => worker.sick) : undefined;
  return sick ? wordOf(WORKER_STATES, sick.state) : null;
}

/** The drawing in a sentence, for who cannot see it; details are in the tables. */
function describe(plot: Plot): string {
  const { detail } = plot;
  const down = detail.restarts.reduce((sum, restart) => sum + (restart.downtime_secs ?? 0), 0);
  return (
    `Timeline: ${plural(detail.sessions.length, "session")}, ${plural(detail.restarts.length, "restart")}` +
    `${down > 0 ? ` with ${formatDuration(down)} of downtime` : ""}, ` +
    `${detail.recoveries.length ? `${plural(detail.recoveries.length, "restart")} within a session, ` : ""}${plural(detail.checkpoints.count, "checkpoint")} ` +
    `of which ${formatCount(detail.checkpoints.failed)} failed, ${plural(plot.stalls.length, "stall")}, ` +
    `${detail.silences.length ? `${plural(detail.silences.length, "silence")}, ` : ""}${detail.at_risk ? `${plural(detail.at_risk.steps, "step")} at risk, ` : ""}` +
    `${plural(plot.lanes.length, "service thread")}${describeWorkers(plot)}. The tables below hold the same.`
  );
}

function describeWorkers({ workers, detail }: Plot): string {
  if (!workers.length) return "";
  const sick = sickOnes(workers);
  const named = sick.slice(0, 3).map((worker) => troubleWords(worker, detail.at));
  return `, ${plural(workers.length, "worker")}${sick.length ? ` of which ${formatCount(sick.length)} in trouble: ${named.join("; ")}` : ""}`;
}
