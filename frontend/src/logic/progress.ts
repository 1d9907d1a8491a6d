/** Which step a run was at at a moment, from sessions and checkpoints; straight lines between them. */
import type { Session } from "../types/api";
import { interpolate, lowerBound } from "./search";

/** Known points of one session's way: both columns rise. */
export interface Way {
  walls: number[];
  steps: number[];
}

/** One way per session, in their order. Checkpoints are (moment, step), oldest first. */
export function waysOf(sessions: readonly Session[], at: ArrayLike<number>, step: ArrayLike<number>): Way[] {
  return sessions.map((session) => {
    const way: Way = { walls: [], steps: [] };
    const { started, ended, first_step: first, last_step: last } = session;
    if (started == null || ended == null) return way;
    if (first != null) {
      const ready = Math.min(started + (session.starting_secs ?? 0) + (session.restoring_secs ?? 0), ended);
      way.walls.push(ready);
      way.steps.push(first);
    }
    for (let i = lowerBound(at, started); i < at.length && (at[i] as number) < ended; i++) {
      const wall = at[i] as number;
      const s = step[i] as number;
      if (last != null && s >= last) continue;
      if (wall > (way.walls.at(-1) ?? -Infinity) && s > (way.steps.at(-1) ?? -Infinity)) {
        way.walls.push(wall);
        way.steps.push(s);
      }
    }
    if (last != null && ended > (way.walls.at(-1) ?? -Infinity)) {
      way.walls.push(ended);
      way.steps.push(last);
    }
    return way;
  });
}

export const stepAt = (way: Way, wall: number): number => interpolate(way.walls, way.steps, wall);

export const wallAt = (way: Way, step: number): number => interpolate(way.steps, way.walls, step);
