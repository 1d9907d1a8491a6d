/** Restarts within a session as places on the axis: the line, the stretch without steps, the stretch done again. */
import type { Recovery, Session } from "../types/api";
import type { Axis } from "./axis";
import { formatCount, formatDuration } from "./format";
import type { Way } from "./progress";
import { wallAt } from "./progress";
import type { View } from "./view";

export interface RecoveryMark {
  recovery: Recovery;
  /** Counted from 1. */
  number: number;
  x: number;
  /** From the loss until training could go on; null on the axis of steps. */
  down: View | null;
  wasted: View | null;
  /** The index of its session. */
  session: number;
}

export function recoveryMarksOf(
  recoveries: readonly Recovery[],
  sessions: readonly Session[],
  ways: readonly Way[],
  axis: Axis,
): RecoveryMark[] {
  const index = new Map(sessions.map((session, i) => [session.id, i]));
  return recoveries.flatMap((recovery, i): RecoveryMark[] => {
    const session = index.get(recovery.session);
    const { at, secs, from_step: from, to_step: to } = recovery;
    if (session === undefined) return [];
    const number = i + 1;
    const again = from != null && to != null && from > to;
    if (axis.kind === "step") {
      if (to == null) return [];
      return [{ recovery, number, x: to, down: null, wasted: again ? { lo: to, hi: from } : null, session }];
    }
    if (!(at > 0)) return [];
    const lost = at - secs;
    const way = ways[session];
    const since = again && way ? wallAt(way, to) : NaN;
    return [
      {
        recovery,
        number,
        session,
        x: axis.ofWall(at),
        down: secs > 0 ? { lo: axis.ofWall(lost), hi: axis.ofWall(at) } : null,
        wasted: since < lost ? { lo: axis.ofWall(since), hi: axis.ofWall(lost) } : null,
      },
    ];
  });
}

/** What is written at the line, where there is room. */
export function recoveryLabel(recovery: Recovery): string {
  const parts = recovery.rewind_steps ? [`−${formatCount(recovery.rewind_steps)} steps`] : [];
  return `↺ ${[...parts, formatDuration(recovery.secs)].join(" · ")}`;
}
