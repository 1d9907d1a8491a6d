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

/** Those that are new are sent; all of them, where what is known is of another run by the same name. */
async function newMarks(run: string, before: Marks | null, signal: AbortSignal): Promise<Marks> {
  const offset = before?.length ?? 0;
  const marks = marksOf(await client.checkpointMarks(run, offset, signal), before);
  if (marks) return marks;
  return marksOf(await client.checkpointMarks(run, 0, signal), null) as Marks;
}

export async function loadRun(run: string, before: RunData | null, signal: AbortSignal): Promise<RunData> {
  if (!before) {
    const [detail, marks, stalls, threads, workers] = await Promise.all([
      client.run(run, signal),
      newMarks(run, null, signal),
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
    saved ? newMarks(run, before.marks, signal) : before.marks,
    stalled ? client.stalls(run, signal) : before.stalls,
    client.threads(run, signal),
    detail.workers ? client.workers(run, signal) : [],
  ]);
  return { detail, marks, stalls, threads, workers };
}
