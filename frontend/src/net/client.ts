/** Requests to the backend: what failed and why, and nothing that has been overtaken. */

import { decodeColumns } from "../logic/columns";
import type {
  CheckpointPage,
  Columns,
  MarksHeader,
  RunDetail,
  RunsAnswer,
  ScalarHeader,
  Stall,
  Tag,
  ThreadHistory,
  WorkerHistory,
} from "../types/api";
import type { ColumnsAnswer, FieldsAnswer } from "../types/columns";
import type { CompareAnswer } from "../types/compare";
import type { IncidentsAnswer, TimelineHeader } from "../types/timeline";
import { BackendError } from "./backend_error";
import { report, reportClient } from "./report";

export { BackendError } from "./backend_error";

const PATIENCE_MS = 30_000;

/** Arguments by name; one that has several values occurs as often. */
type Arguments = Record<string, string | number | readonly string[] | null>;

async function request(path: string, args: Arguments, signal?: AbortSignal): Promise<Response> {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(args))
    for (const each of typeof value === "object" ? (value ?? []) : [value]) words.append(key, String(each));
  const query = words.size ? `?${words}` : "";
  let response: Response;
  try {
    const limit = AbortSignal.timeout(PATIENCE_MS);
    response = await fetch(path + query, {
      cache: "no-store",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new BackendError("gone", "TensorBoard does not answer.");
  }
  if (response.ok) return response;
  let said: { error?: string; reason?: string } = {};
  try {
    said = (await response.json()) as typeof said;
  } catch {
    // What is not ours, such as a proxy's page, has no words for people.
  }
  const text = said.error ?? `The answer was ${response.status} ${response.statusText}.`;
  if (response.status === 503) throw new BackendError(said.reason === "failed" ? "failed" : "starting", text);
  if (response.status === 404 && said.error !== undefined) throw new BackendError("missing", text);
  throw new BackendError(response.status >= 502 ? "gone" : "refused", text);
}

/** The answer, as `read` reads it. */
async function answered<T>(
  path: string,
  args: Arguments,
  signal: AbortSignal | undefined,
  read: (response: Response) => Promise<T>,
): Promise<T> {
  const response = await request(path, args, signal);
  try {
    return await read(response);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new BackendError("gone", "The answer broke off.");
  }
}

const json = <T>(path: string, args: Arguments, signal?: AbortSignal): Promise<T> =>
  answered(path, args, signal, (response) => response.json() as Promise<T>);

const columns = <H>(path: string, args: Arguments, signal?: AbortSignal): Promise<Columns<H>> =>
  answered(path, args, signal, async (response) => decodeColumns<H>(await response.arrayBuffer()));

export interface WindowQuery {
  by: "wall" | "step" | "running";
  from: number | null;
  to: number | null;
  pixels: number;
}

export interface ScalarQuery extends WindowQuery {
  /** Weight of the moving average; null for none. */
  smoothing: number | null;
}

const backend = {
  runs: (since: number | null, signal?: AbortSignal) => json<RunsAnswer>("runs", { since }, signal),
  fields: (signal?: AbortSignal) => json<FieldsAnswer>("fields", {}, signal),
  columns: (keys: readonly string[], since: number | null, signal?: AbortSignal) =>
    json<ColumnsAnswer>("columns", { key: keys, since }, signal),
  run: (run: string, signal?: AbortSignal) => json<RunDetail>("run", { run }, signal),
  threads: async (run: string, signal?: AbortSignal) =>
    (await json<{ threads: ThreadHistory[] }>("threads", { run }, signal)).threads,
  workers: async (run: string, signal?: AbortSignal) =>
    (await json<{ workers: WorkerHistory[] }>("workers", { run }, signal)).workers,
  checkpoints: (run: string, offset: number, limit: number, order: "newest" | "oldest", signal?: AbortSignal) =>
    json<CheckpointPage>("checkpoints", { run, offset, limit, order }, signal),
  checkpointMarks: (run: string, query: WindowQuery, signal?: AbortSignal) =>
    columns<MarksHeader>("checkpoint_marks", { run, ...query }, signal),
  stalls: async (run: string, signal?: AbortSignal) =>
    (await json<{ stalls: Stall[] }>("stalls", { run }, signal)).stalls,
  tags: async (run: string, signal?: AbortSignal) => (await json<{ tags: Tag[] }>("tags", { run }, signal)).tags,
  scalars: (run: string, tag: string, query: ScalarQuery, signal?: AbortSignal) =>
    columns<ScalarHeader>("scalars", { run, tag, ...query }, signal),
  compare: (runs: readonly string[], tags: readonly string[], signal?: AbortSignal) =>
    json<CompareAnswer>("compare", { run: runs, tag: tags }, signal),
  timeline: (from: number | null, by: string, signal?: AbortSignal) =>
    columns<TimelineHeader>("timeline", { from, by }, signal),
  incidents: (from: number | null, to: number | null, signal?: AbortSignal) =>
    json<IncidentsAnswer>("incidents", { from, to }, signal),
};

export type Client = typeof backend;

/** What answers: the backend, or the page itself where it is a report. */
export const client: Client = report ? reportClient(report) : backend;

/** One question at a time: asking again calls the one before off, and its answer never arrives. */
export class Latest {
  #current: AbortController | null = null;

  /** The answer, or null where another question or `cancel` overtook it. */
  async ask<T>(question: (signal: AbortSignal) => Promise<T>): Promise<T | null> {
    this.#current?.abort();
    const own = new AbortController();
    this.#current = own;
    try {
      const answer = await question(own.signal);
      return this.#current === own ? answer : null;
    } catch (error) {
      if (this.#current !== own || own.signal.aborted) return null;
      throw error;
    }
  }

  cancel(): void {
    this.#current?.abort();
    this.#current = null;
  }
}
