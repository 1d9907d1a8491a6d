/** All of one run that the page needs, asked for again only where it may have changed. */
import type { Marks } from "../logic/marks";
import { marksOf } from "../logic/marks";
import { BackendError, client } from "../net/client";
import type { RunDetail, Stall, Tag, ThreadHistory } from "../types/api";

export interface RunData {
  detail: RunDetail;
  marks: Marks;
  stalls: Stall[];
  threads: ThreadHistory[];
  /** null while the backend still reads them. */
  tags: Tag[] | null;
}

async function tagsOf(run: string, signal: AbortSignal): Promise<Tag[] | null> {
  try {
    return await client.tags(run, signal);
  } catch (error) {
    if (error instanceof BackendError && error.kind === "starting") return null;
    throw error;
  }
}

export async function loadRun(run: string, before: RunData | null, signal: AbortSignal): Promise<RunData> {
  if (!before) {
    const [detail, marks, stalls, threads, tags] = await Promise.all([
      client.run(run, signal),
      client.checkpointMarks(run, signal).then(marksOf),
      client.stalls(run, signal),
      client.threads(run, signal),
      tagsOf(run, signal),
    ]);
    return { detail, marks, stalls, threads, tags };
  }
  const detail = await client.run(run, signal);
  const saved = JSON.stringify(detail.checkpoints) !== JSON.stringify(before.detail.checkpoints);
  const stalled = detail.stalls !== before.detail.stalls || before.stalls.some((stall) => stall.until === null);
  const [marks, stalls, threads, tags] = await Promise.all([
    saved ? client.checkpointMarks(run, signal).then(marksOf) : before.marks,
    stalled ? client.stalls(run, signal) : before.stalls,
    client.threads(run, signal),
    tagsOf(run, signal),
  ]);
  return { detail, marks, stalls, threads, tags: tags ?? before.tags };
}
