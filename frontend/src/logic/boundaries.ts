/** Restarts as places on the axis: the line, the stretch in which nothing ran, the stretch that was done again. */
import type { Restart, Session } from "../types/api";
import type { Axis } from "./axis";
import { formatCount, formatDuration } from "./format";
import type { Way } from "./progress";
import { wallAt } from "./progress";
import { RESUMES, resumeOf } from "./resume";
import type { View } from "./view";
import { OUTCOMES, reasonOf } from "./words";

export interface Boundary {
  restart: Restart;
  /** Counted from 1. */
  number: number;
  x: number;
  /** Nothing ran; null on the axis of steps. */
  down: View | null;
  /** What the earlier session did after the step that was gone on from. */
  wasted: View | null;
  /** Its index in the list of sessions. */
  from: number;
  to: number;
  /** The later session found its model alive in the cluster. */
  adopted: boolean;
  /** The later session. */
  after: Session;
}

export function boundariesOf(
  restarts: readonly Restart[],
  sessions: readonly Session[],
  ways: readonly Way[],
  axis: Axis,
): Boundary[] {
  const index = new Map(sessions.map((session, i) => [session.id, i]));
  return restarts.flatMap((restart, i): Boundary[] => {
    const to = index.get(restart.to_session);
    const from = index.get(restart.from_session);
    const before = from === undefined ? undefined : sessions[from];
    const after = to === undefined ? undefined : sessions[to];
    if (!before || !after || from === undefined || to === undefined) return [];
    const number = i + 1;
    const { adopted } = after;
    if (axis.kind === "step") {
      const { from_step: end, to_step: start } = restart;
      if (start == null) return [];
      const wasted = end != null && end > start ? { lo: start, hi: end } : null;
      return [{ restart, number, x: start, down: null, wasted, from, to, adopted, after }];
    }
    if (restart.at == null || restart.at <= 0) return [];
    const x = axis.ofWall(restart.at);
    const ended = before.ended == null ? null : axis.ofWall(before.ended);
    const down = ended != null && ended < x ? { lo: ended, hi: x } : null;
    return [
      { restart, number, x, down, wasted: wastedOf(restart, before, ways[from], axis), from, to, adopted, after },
    ];
  });
}

function wastedOf(restart: Restart, before: Session, way: Way | undefined, axis: Axis): View | null {
  if (!way || !restart.rewind_steps || restart.to_step == null || before.ended == null) return null;
  const since = wallAt(way, restart.to_step);
  return since < before.ended ? { lo: axis.ofWall(since), hi: axis.ofWall(before.ended) } : null;
}

/** What is written at the line: its sign, what was done again, how long nothing ran, whether it went on exactly. */
export function boundaryLabel({ restart, adopted, after }: Boundary): string {
  const { label } = reasonOf(restart);
  const parts = label === OUTCOMES.unknown.label ? [] : [label];
  if (adopted) parts.push("model kept");
  const isExact = restart.rewind_steps_most === restart.rewind_steps;
  if (restart.rewind_steps) parts.push(`−${formatCount(restart.rewind_steps)}${isExact ? "" : "+"} steps`);
  if (restart.downtime_secs != null && restart.downtime_secs > 0)
    parts.push(`${formatDuration(restart.downtime_secs)} down`);
  const resume = resumeOf(after);
  if (resume !== "unknown") parts.push(RESUMES[resume].label);
  return `↻ ${parts.join(" · ") || "restart"}`;
}
