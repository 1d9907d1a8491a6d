/** All of one run that the page needs but its scalars, asked for again only where it may have changed. */
import type { Marks } from "../logic/marks";
import { marksOf } from "../logic/marks";
import { client } from "../net/client";
import type { RunDetail, Stall, ThreadHistory, WorkerHistory } from "../types/api";

export interface RunData {
  detail: RunDetail;
  marks: Marks;
  stalls: Stall[];
  threads: ThreadHistory[];
  workers: WorkerHistory[];
}

/** A mark is wider than a pixel. */
export const MARK_COLUMNS = 512;

const allMarks = async (run: string, signal: AbortSignal): Promise<Marks> =>
  marksOf(await client.checkpointMarks(run, { by: "wall", from: null, to: null, pixels: MARK_COLUMNS }, signal));

export async function loadRun(run: string, before: RunData | null, signal: AbortSignal): Promise<RunData> {
  if (!before) {
    const [detail, marks, stalls, threads, workers] = await Promise.all([
      client.run(run, signal),
      allMarks(run, signal),
      client.stalls(run, signal),
      client.threads(run, signal),
      client.workers(run, signal),
    ]);
    return { detail, marks, stalls, threads, workers };
  }
  const detail = await client.run(run, signal);
  const saved = JSON.stringify(detail.checkpoints) !== JSON.stringify(before.detail.checkpoints);
  const stalled = detail.stalls !== before.detail.stalls || before.stalls.some((stall) => stall.until === null);
  const [marks, stalls, threads, workers] = await Promise.all([
    saved ? allMarks(run, signal) : before.marks,
    stalled ? client.stalls(run, signal) : before.stalls,
    client.threads(run, signal),
    detail.workers ? client.workers(run, signal) : [],
  ]);
  return { detail, marks, stalls, threads, workers };
}
