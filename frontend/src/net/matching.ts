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
  const worker = new Worker(new URL(WORKER, import.meta.url), { type: "module" });
  return await new Promise<boolean[]>((resolve, reject) => {
    stopped.addEventListener("abort", reject);
    setTimeout(reject, LIMIT_MS);
    worker.onerror = reject;
    worker.onmessage = ({ data }: MessageEvent<boolean[]>) => resolve(data);
    worker.postMessage({ expression, names });
  }).finally(() => worker.terminate());
}
