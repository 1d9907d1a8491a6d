/** Matches names in a worker, which can be stopped: some regular expressions would never end. */

import { report } from "./report";

/** The script of the worker, beside this one; named by `build.mjs`. */
declare const WORKER: string;

const LIMIT_MS = 5_000;

/** See `Match` in `logic/filter.ts`. A report is one file: it has no worker. */
export async function match(expression: string, names: string[], stopped: AbortSignal): Promise<boolean[]> {
  if (report) {
    const wanted = new RegExp(expression, "i");
    return names.map((name) => wanted.test(name));
  }
  return await ask<boolean>({ expression, names, capture: false }, stopped);
}

/** What an expression captures of each name; null where it is not found in it. Rejects as `match` does. */
export const capture = (expression: string, names: string[], stopped: AbortSignal): Promise<(string | null)[]> =>
  ask<string | null>({ expression, names, capture: true }, stopped);

async function ask<Answer>(question: object, stopped: AbortSignal): Promise<Answer[]> {
  const worker = new Worker(new URL(WORKER, import.meta.url), { type: "module" });
  return await new Promise<Answer[]>((resolve, reject) => {
    stopped.addEventListener("abort", reject);
    setTimeout(reject, LIMIT_MS);
    worker.onerror = reject;
    worker.onmessage = ({ data }: MessageEvent<Answer[]>) => resolve(data);
    worker.postMessage(question);
  }).finally(() => worker.terminate());
}
