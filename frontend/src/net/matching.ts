/** Matches names in a worker, which can be stopped: some regular expressions would never end. */

/** The script of the worker, beside this one; named by `build.mjs`. */
declare const WORKER: string;

const LIMIT_MS = 5_000;

/** See `Match` in `logic/filter.ts`. */
export async function match(expression: string, names: string[], stopped: AbortSignal): Promise<boolean[]> {
  const worker = new Worker(new URL(WORKER, import.meta.url), { type: "module" });
  return await new Promise<boolean[]>((resolve, reject) => {
    stopped.addEventListener("abort", reject);
    setTimeout(reject, LIMIT_MS);
    worker.onerror = reject;
    worker.onmessage = ({ data }: MessageEvent<boolean[]>) => resolve(data);
    worker.postMessage({ expression, names });
  }).finally(() => worker.terminate());
}
