/** The timeline's rows, drawn. */
import { boundaryLabel } from "../logic/boundaries";
import { formatCount } from "../logic/format";
import type { Cluster } from "../logic/marks";
import { clusterMarks } from "../logic/marks";
import type { Plot } from "../logic/plot";
import { printable } from "../logic/printable";
import { recoveryLabel } from "../logic/recoveries";
import type { Row } from "../logic/rows_of_plot";
import { lowerBound } from "../logic/search";
import { placeLabel, stallLabels } from "../logic/stalls";
import type { View } from "../logic/view";
import { toPixel } from "../logic/view";
import { OUTCOMES, wordOf } from "../logic/words";
import type { Silence } from "../types/api";
import { cross, diamond, fitText, hatch } from "./canvas";
import type { Theme } from "./theme";

export interface Frame {
  c: CanvasRenderingContext2D;
  theme: Theme;
  plot: Plot;
  view: View;
  left: number;
  width: number;
}

/** Marks nearer than this are one. */
const CROWD_PX = 7;

export const px = (frame: Frame, x: number): number => toPixel(x, frame.view, frame.left, frame.width);

/** Restarts through everything: a line, what lies between two sessions, the part that was done again. */
export function paintBoundaries(frame: Frame, top: number, height: number, wasted: boolean): void {
  const { c, theme, plot, left, width } = frame;
  const right = left + width;
  for (const cut of plot.axis.cuts) {
    const lo = px(frame, cut.lo);
    const hi = px(frame, cut.hi);
    if (hi < left || lo > right) continue;
    c.globalAlpha = 0.5;
    hatch(c, lo, top, hi - lo, height, theme.border, 4);
    c.globalAlpha = 1;
  }
  const recovered = new Set<unknown>(plot.recoveries);
  const drawn = new Set<number>(); // of many at one place one line is enough
  for (const mark of [...plot.recoveries, ...plot.boundaries]) {
    const { down, wasted: lost, x } = mark;
    if (down) shade(frame, down, top, height, theme.muted, 0.1);
    if (lost && wasted) shade(frame, lost, top, height, theme.wasted, 0.1);
    const at = Math.round(px(frame, x)) + 0.5;
    if (at < left || at > right) continue;
    // Within a session: the same, but lighter.
    const within = recovered.has(mark);
    const place = within ? -at : at;
    if (drawn.has(place)) continue;
    drawn.add(place);
    c.strokeStyle = theme.tone[within ? "warn" : "bad"];
    c.lineWidth = 1;
    c.globalAlpha = within ? 0.9 : 0.75;
    c.setLineDash(within ? [1, 3] : [4, 3]);
    c.beginPath();
    c.moveTo(at, top);
    c.lineTo(at, top + height);
    c.stroke();
    c.setLineDash([]);
    c.globalAlpha = 1;
  }
}

function shade(frame: Frame, view: View, top: number, height: number, colour: string, alpha: number): void {
  const lo = Math.max(frame.left, px(frame, view.lo));
  const hi = Math.min(frame.left + frame.width, px(frame, view.hi));
  if (hi <= lo) return;
  frame.c.globalAlpha = alpha;
  frame.c.fillStyle = colour;
  frame.c.fillRect(lo, top, hi - lo, height);
  frame.c.globalAlpha = 1;
}

export function paintLabels(frame: Frame, row: Row): void {
  const { c, theme, plot, left, width } = frame;
  let free = left;
  c.font = theme.font;
  c.textBaseline = "middle";
  c.fillStyle = theme.text;
  const taken: [number, number][] = [];
  const write = (text: string, x: number): void => {
    c.fillText(text, x, row.y + row.h / 2);
    taken.push([x - 4, x + c.measureText(text).width + 4]);
  };
  const seen = plot.boundaries.filter(({ x }) => px(frame, x) >= left - 1 && px(frame, x) <= left + width);
  const places = seen.map(({ x }) => px(frame, x));
  const sorted = Float64Array.from(places).sort();
  seen.forEach((boundary, i) => {
    const at = px(frame, boundary.x);
    // Of restarts at one place the first stands for all.
    const same = (other: number | undefined): boolean => other !== undefined && Math.abs(other - at) < 1;
    if (same(places[i - 1])) return;
    let later = i + 1;
    while (same(places[later])) later += 1;
    const next = places[later];
    const here = lowerBound(sorted, at + 1) - lowerBound(sorted, at - 1);
    const room = (next ?? left + width) - at - 8;
    const text = here > 1 ? `↻ ${formatCount(here)} restarts` : printable(boundaryLabel(boundary));
    const size = c.measureText(text).width;
    // The last ones of a crowd at the right edge are written to the left of their line.
    if (size > room && next === undefined && at - 8 - size > free) {
      write(text, at - 5 - size);
      return;
    }
    const fitted = room > 40 ? fitText(c, text, room) : "↻";
    if (at < free || room < 12) return;
    write(fitted, at + 4);
    free = at + 8 + c.measureText(fitted).width;
  });
  labelRecoveries(frame, taken, write);
}

/** Where restarts leave room. */
function labelRecoveries(frame: Frame, taken: [number, number][], write: (text: string, x: number) => void): void {
  const { c, theme, plot, left, width } = frame;
  c.fillStyle = theme.muted;
  const lines = Float64Array.from(plot.boundaries, ({ x }) => px(frame, x)).sort();
  const least = c.measureText("↺").width;
  const seen = plot.recoveries.filter(({ x }) => px(frame, x) >= left - 1 && px(frame, x) <= left + width);
  seen.forEach(({ x, recovery }, i) => {
    const at = px(frame, x);
    const next = seen[i + 1];
    let room = Infinity;
    for (const end of [left + width, next ? px(frame, next.x) : Infinity, lines[lowerBound(lines, at + 1)] ?? Infinity])
      if (end > at + 1) room = Math.min(room, end - at - 8);
    if (room < least || taken.some(([lo, hi]) => at + 4 >= lo && at + 4 < hi)) return;
    for (const [lo] of taken) if (lo > at + 1) room = Math.min(room, lo - at - 8);
    const text = recoveryLabel(recovery);
    const fitted = c.measureText(text).width <= room ? text : "↺";
    if (c.measureText(fitted).width <= room) write(fitted, at + 4);
  });
}

export function paintSessions(frame: Frame, row: Row & { kind: "sessions" }): void {
  const { c, theme, plot, left, width } = frame;
  c.font = theme.font;
  c.textBaseline = "middle";
  const wasted = wastedBySession(plot);
  const silences = new Map<string, Silence[]>();
  for (const silence of plot.detail.silences) append(silences, silence.session, silence);
  plot.bars.forEach((bar, i) => {
    const session = plot.detail.sessions[i];
    if (!bar || !session) return;
    const from = px(frame, bar.lo);
    const to = Math.max(px(frame, bar.hi), from + 2);
    if (to < left || from > left + width) return;
    const x = Math.max(from, left - 2);
    const w = Math.min(to, left + width + 2) - x;
    const y = row.y + bar.row * (row.barHeight + 2);
    const word = wordOf(OUTCOMES, session.outcome);
    const colour = theme.tone[word.tone];
    c.fillStyle = colour;
    c.globalAlpha = 0.22;
    c.fillRect(x, y, w, row.barHeight);
    c.globalAlpha = 1;
    for (const lost of plot.axis.kind === "step" ? [] : (wasted.get(i) ?? [])) {
      const lo = Math.max(px(frame, lost.lo), x);
      const hi = Math.min(px(frame, lost.hi), x + w);
      hatch(c, lo, y, hi - lo, row.barHeight, theme.wasted, 5);
    }
    if (plot.risk && i === plot.bars.length - 1) {
      const lo = Math.max(px(frame, plot.risk.lo), x);
      hatch(c, lo, y, Math.min(px(frame, plot.risk.hi), x + w) - lo, row.barHeight, theme.tone.bad, 7);
    }
    if (plot.axis.kind !== "step") paintSilences(frame, silences.get(session.id) ?? [], y, row.barHeight);
    c.strokeStyle = colour;
    c.lineWidth = 1;
    if (w > 3) c.strokeRect(x + 0.5, y + 0.5, w - 1, row.barHeight - 1);
    c.fillStyle = colour;
    // How it ended, at its end.
    if (to <= left + width + 2) c.fillRect(to - 3, y, 3, row.barHeight);
    const room = w - 12;
    if (room > 12) {
      c.fillStyle = theme.text;
      const text = fitText(c, `${word.glyph} ${session.attempt} ${word.label}`, room);
      c.fillText(text.length > 1 ? text : word.glyph, Math.max(x, left) + 5, y + row.barHeight / 2 + 0.5);
    }
  });
  // What the program said, at their foot.
  c.fillStyle = theme.tone.warn;
  for (const { x } of plot.notices) c.fillRect(px(frame, x) - 2, row.y + row.h - 5, 5, 7);
}

/** By a session's place: the parts of it that were recomputed. */
function wastedBySession(plot: Plot): Map<number, View[]> {
  const found = new Map<number, View[]>();
  for (const { from, wasted } of plot.boundaries) if (wasted) append(found, from, wasted);
  for (const { session, wasted } of plot.recoveries) if (wasted) append(found, session, wasted);
  return found;
}

function append<Key, Value>(lists: Map<Key, Value[]>, key: Key, value: Value): void {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

/** Where a session's process did not run the bar is blank, between two edges. */
function paintSilences(frame: Frame, silences: readonly Silence[], y: number, height: number): void {
  const { c, theme, plot, left, width } = frame;
  for (const silence of silences) {
    const from = Math.max(px(frame, plot.axis.ofWall(silence.since)), left);
    const to = Math.min(Math.max(px(frame, plot.axis.ofWall(silence.until)), from + 3), left + width);
    if (to <= from) continue;
    c.fillStyle = theme.background;
    c.fillRect(from, y, to - from, height);
    c.fillStyle = theme.tone.warn;
    c.fillRect(from, y, 1, height);
    c.fillRect(to - 1, y, 1, height);
    if (to - from > 14) {
      c.font = theme.font;
      c.textBaseline = "middle";
      c.fillText("○", (from + to) / 2 - 5, y + height / 2 + 0.5);
    }
  }
}

export interface PaintedMarks {
  good: Cluster[];
  failed: Cluster[];
}

export function paintCheckpoints(frame: Frame, row: Row): PaintedMarks {
  const { c, theme, plot, view, left, width } = frame;
  const clusters = clusterMarks(plot.placed, plot.marks, view, left, width, CROWD_PX);
  const y = row.y + row.h / 2 + 1;
  c.strokeStyle = theme.grid;
  c.beginPath();
  c.moveTo(left, y + 0.5);
  c.lineTo(left + width, y + 0.5);
  c.stroke();
  const colour = theme.accent;
  c.lineWidth = 1.25;
  for (const cluster of clusters.good) {
    c.strokeStyle = colour;
    c.fillStyle = cluster.there ? colour : theme.background;
    if (cluster.right - cluster.left < 2) {
      diamond(c, cluster.left, y, 4.5);
    } else {
      c.beginPath();
      // Pieces of one crowd stand side by side.
      const room = cluster.right - cluster.left > 40 ? -1 : 4;
      c.roundRect(cluster.left - room, y - 4, cluster.right - cluster.left + 2 * room, 8, 4);
      if (cluster.there === 0 || cluster.there < cluster.count / 2) c.fillStyle = theme.background;
    }
    c.fill();
    c.stroke();
    if (cluster.count > 1 && cluster.right - cluster.left > 40) writeCount(frame, cluster, y);
  }
  for (const cluster of clusters.failed) {
    const x = (cluster.left + cluster.right) / 2;
    c.strokeStyle = theme.background;
    c.lineWidth = 5;
    cross(c, x, y, 5);
    c.stroke();
    c.strokeStyle = theme.tone.bad;
    c.lineWidth = 2.5;
    cross(c, x, y, 5);
    c.stroke();
  }
  return clusters;
}

function writeCount(frame: Frame, cluster: Cluster, y: number): void {
  const { c, theme, left, width } = frame;
  const text = `${cluster.count.toLocaleString("en-US")}×`;
  const size = c.measureText(text).width + 8;
  const middle = Math.min(Math.max((cluster.left + cluster.right) / 2, left + size / 2), left + width - size / 2);
  c.fillStyle = theme.background;
  c.fillRect(middle - size / 2, y - 7, size, 14);
  c.fillStyle = theme.text;
  c.font = theme.font;
  c.textBaseline = "middle";
  c.fillText(text, middle - size / 2 + 4, y + 0.5);
}

export function paintStalls(frame: Frame, row: Row): void {
  const { c, theme, plot, left, width } = frame;
  const colour = theme.tone.warn;
  const right = left + width;
  const boxes = plot.stalls
    .map((stall) => {
      const lo = px(frame, plot.axis.ofWall(stall.since));
      return { stall, lo, hi: Math.max(px(frame, plot.axis.ofWall(stall.until ?? stall.since + stall.secs)), lo + 8) };
    })
    .filter(({ lo, hi }) => hi >= left && lo <= right);
  c.font = theme.font;
  c.textBaseline = "middle";
  let free = left;
  boxes.forEach(({ stall, lo, hi }, i) => {
    const x = Math.max(lo, left);
    const w = Math.min(hi, right) - x;
    c.fillStyle = colour;
    c.globalAlpha = 0.3;
    c.fillRect(x, row.y, w, row.h);
    c.globalAlpha = 1;
    c.strokeStyle = colour;
    c.lineWidth = 1.5;
    c.strokeRect(x + 0.75, row.y + 0.75, Math.max(0, w - 1.5), row.h - 1.5);
    // Inside its box, or else beside it: to the right, or to the left where the right is taken.
    const next = Math.min(boxes[i + 1]?.lo ?? right, right);
    const place = placeLabel(
      (text) => c.measureText(text).width,
      stallLabels(stall).map(printable),
      { lo: x, hi: x + w },
      free,
      next,
    );
    free = x + w;
    if (!place) return;
    c.fillStyle = theme.text;
    c.fillText(place.text, place.x, row.y + row.h / 2 + 0.5);
    free = Math.max(free, place.x + c.measureText(place.text).width);
  });
}
