/** TensorBoard's average, as the backend takes it (tb_plugin/scalars.py), of a curve all of whose points are here. */
import type { Columns, ScalarHeader } from "../types/api";
import { column } from "./columns";

/** The weighted sum of what was averaged, and the weight that is still missing. */
interface Average {
  sum: number;
  missing: number;
}

/** Along what was kept: points that were abandoned continue it, and leave no trace in what follows. */
export function smoothed(scalars: Columns<ScalarHeader>, weight: number): Float64Array {
  const step = column(scalars, "step");
  const value = column(scalars, "value");
  const segment = column(scalars, "segment");
  const found = Float64Array.from(value);
  let kept: Average = { sum: 0, missing: 1 };
  scalars.header.segments.forEach(({ abandoned_after_step: limit }, index) => {
    let average = kept;
    let isKept = true;
    for (let i = 0; i < value.length; i++) {
      if (segment[i] !== index) continue;
      if (isKept && limit !== null && (step[i] as number) > limit) {
        kept = average;
        isKept = false;
      }
      const own = value[i] as number;
      if (!Number.isFinite(own)) continue;
      average = { sum: average.sum * weight + own * (1 - weight), missing: average.missing * weight };
      found[i] = average.sum / (1 - average.missing);
    }
    if (isKept) kept = average;
  });
  return found;
}
