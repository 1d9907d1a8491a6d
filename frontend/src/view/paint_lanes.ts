/** Lanes of service threads and of workers, drawn: what is well is a line, what is not is a hatched bar. */

import { sessionAt } from "../logic/plot";
import type { Row } from "../logic/rows_of_plot";
import type { Tone } from "../logic/words";
import { WORKER_STATES, wordOf } from "../logic/words";
import type { CrowdSpan } from "../logic/workers";
import { isTrouble } from "../logic/workers";
import type { WorkerSpan, WorkerState } from "../types/api";
import { cross, fitText, hatch } from "./canvas";
import type { Frame } from "./paint";
import { px } from "./paint";

type LaneRow = Row & { kind: "thread" | "worker" };

/** Signs nearer than this are not written. */
const SIGN_PX = 14;

/** A stretch with something wrong: `share` of the lane's height, from its bottom. */
function bar(frame: Frame, row: Row, lo: number, hi: number, tone: Tone, gap: number, share = 1): void {
  const { c, theme } = frame;
  const colour = theme.tone[tone];
  const h = Math.max(5, (row.h - 2) * share);
  const y = row.y + row.h - 1 - h;
  c.fillStyle = colour;
  c.globalAlpha = 0.3;
  c.fillRect(lo, y, hi - lo, h);
  c.globalAlpha = 1;
  hatch(c, lo, y, hi - lo, h, colour, gap);
}

/** A stretch in which all is well: thick where work is done. */
function line(frame: Frame, row: Row, lo: number, hi: number, tone: Tone, thick: number, alpha: number): void {
  const { c, theme } = frame;
  c.fillStyle = theme.tone[tone];
  c.globalAlpha = alpha;
  c.fillRect(lo, row.y + row.h / 2 - thick / 2, hi - lo, thick);
  c.globalAlpha = 1;
}

export function paintThread(frame: Frame, row: LaneRow): void {
  const { c, theme, plot, left, width } = frame;
  const lane = plot.lanes[row.lane];
  if (!lane) return;
  const y = row.y + row.h / 2;
  const right = left + width;
  const place = (at: number, session: number): number => px(frame, plot.axis.ofWall(at, session));
  for (const { history, session } of lane.histories) {
    for (const [since, until, state] of history.spans) {
      const lo = Math.max(place(since, session), left);
      const hi = Math.min(Math.max(place(until, session), lo + 1), right);
      if (hi < left || lo > right || hi <= lo) continue;
      if (state === "overdue" || state === "failed") {
        bar(frame, row, lo, hi, state === "failed" ? "bad" : "warn", state === "failed" ? 4 : 7);
      } else {
        const busy = state === "ticking";
        line(frame, row, lo, hi, busy ? "live" : "calm", busy ? 6 : 2, state === "stopped" ? 0.15 : 0.35);
      }
    }
    let last = -Infinity;
    c.fillStyle = theme.tone.calm;
    for (const [at, , ok] of history.seen_ticks) {
      const x = place(at, session);
      if (x < left || x > right || !ok || x - last < 1) continue;
      last = x;
      c.fillRect(Math.round(x), y - 4, 1, 8);
    }
    c.strokeStyle = theme.tone.bad;
    c.lineWidth = 2;
    for (const [at, , ok] of history.seen_ticks) {
      const x = place(at, session);
      if (ok || x < left || x > right) continue;
      cross(c, x, y, 3.5);
      c.stroke();
    }
  }
}

export function paintWorkers(frame: Frame, row: LaneRow): void {
  const lane = frame.plot.workerLanes[row.lane];
  if (lane?.crowd) {
    for (const span of lane.crowd) paintCrowd(frame, row, span);
    return;
  }
  const spans = lane?.workers[0]?.spans ?? [];
  for (const [i, span] of spans.entries()) paintSpan(frame, row, span, spans[i - 1]);
  for (const [since, , , , again] of spans) if (again) paintStart(frame, row, since);
}

/** From where to where in pixels; null where that is out of sight. */
function placed(frame: Frame, since: number, until: number): [number, number] | null {
  const { plot, left, width } = frame;
  const session = sessionAt(plot, since);
  const from = px(frame, plot.axis.ofWall(since, session));
  const to = Math.max(px(frame, plot.axis.ofWall(until, session)), from + 1);
  return to < left || from > left + width ? null : [Math.max(from, left), Math.min(to, left + width)];
}

function paintSpan(frame: Frame, row: LaneRow, [since, until, state]: WorkerSpan, before?: WorkerSpan): void {
  const place = placed(frame, since, until);
  if (!place) return;
  const [lo, hi] = place;
  const { tone, glyph } = wordOf(WORKER_STATES, state);
  if (isTrouble(state)) {
    bar(frame, row, lo, hi, tone, tone === "bad" ? 4 : 7);
    const goesOn = before?.[2] === state && before[1] === since;
    if (hi - lo > SIGN_PX && !goesOn) sign(frame, row, glyph, lo + 2, tone);
  } else well(frame, row, lo, hi, state);
}

function well(frame: Frame, row: LaneRow, lo: number, hi: number, state: WorkerState): void {
  if (state === "waiting") for (let x = lo; x < hi; x += 6) line(frame, row, x, Math.min(x + 3, hi), "calm", 2, 0.7);
  else if (state === "running") line(frame, row, lo, hi, "live", 6, 0.35);
  else line(frame, row, lo, hi, "calm", 2, 0.2);
}

/** Many together: the worst state's bar, as high as their share is. */
function paintCrowd(frame: Frame, row: LaneRow, { since, until, counts }: CrowdSpan): void {
  const place = placed(frame, since, until);
  if (!place) return;
  const [lo, hi] = place;
  const states = (Object.keys(counts) as WorkerState[]).sort(
    (a, b) => wordOf(WORKER_STATES, a).rank - wordOf(WORKER_STATES, b).rank,
  );
  const sick = states.filter(isTrouble);
  const fine = (["running", "waiting", "stopped"] as const).find((state) => counts[state]);
  if (fine) well(frame, row, lo, hi, fine);
  const sum = (of: WorkerState[]): number => of.reduce((all, state) => all + (counts[state] ?? 0), 0);
  const worst = sick[0];
  if (!worst) return;
  const { tone, glyph } = wordOf(WORKER_STATES, worst);
  bar(frame, row, lo, hi, tone, tone === "bad" ? 4 : 7, sum(sick) / sum(states));
  if (hi - lo > 2 * SIGN_PX) sign(frame, row, fitText(frame.c, `${glyph} ${sum(sick)}`, hi - lo - 6), lo + 2, tone);
}

/** A new process. */
function paintStart(frame: Frame, row: LaneRow, since: number): void {
  const place = placed(frame, since, since);
  if (!place) return;
  const { c, theme } = frame;
  const x = Math.round(place[0]);
  c.fillStyle = theme.text;
  c.fillRect(x, row.y, 1, row.h);
  sign(frame, row, "↻", x + 3, null);
}

/** On a ground of its own, so that it can be read over hatching. */
function sign(frame: Frame, row: LaneRow, text: string, x: number, tone: Tone | null): void {
  const { c, theme } = frame;
  c.font = theme.font;
  c.textBaseline = "middle";
  c.fillStyle = theme.background;
  c.fillRect(x - 2, row.y + 1, c.measureText(text).width + 4, row.h - 2);
  c.fillStyle = tone ? theme.tone[tone] : theme.text;
  c.fillText(text, x, row.y + row.h / 2 + 0.5);
}
