/** The vertical scale of a chart: its range with some room, and round values on it. */
import { formatValue } from "./format";
import { niceStep } from "./ticks";

export interface YScale {
  lo: number;
  hi: number;
  log: boolean;
  ticks: { y: number; label: string }[];
}

export function makeYScale(extent: [number, number] | null, log: boolean, height: number): YScale {
  const most = Math.max(3, Math.floor(height / 26));
  if (!extent) return { lo: log ? 0.1 : 0, hi: 1, log, ticks: [] };
  return log ? logScale(extent, most) : linearScale(extent, most);
}

function linearScale([least, most]: [number, number], count: number): YScale {
  const span = most - least;
  const room = span > 0 ? span * 0.06 : Math.abs(most) * 0.1 || 1;
  const lo = least - room;
  const hi = most + room;
  const step = niceStep((hi - lo) / count);
  const ticks = [];
  for (let i = Math.ceil(lo / step); i * step <= hi && ticks.length < 50; i++) {
    const y = i * step;
    ticks.push({ y, label: formatValue(Number(y.toPrecision(12))) });
  }
  return { lo, hi, log: false, ticks };
}

function logScale([least, most]: [number, number], count: number): YScale {
  const room = Math.max(0.05, Math.log10(most / least) * 0.05);
  const lo = Math.log10(least) - room;
  const hi = Math.log10(most) + room;
  const decades = Math.max(1, Math.ceil((hi - lo) / count));
  const digits = hi - lo < 1.2 ? [1, 1.5, 2, 3, 4, 5, 7] : hi - lo < count / 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let power = Math.floor(lo); power <= hi; power++) {
    if (power % decades !== 0) continue;
    for (const digit of digits) {
      const y = digit * 10 ** power;
      if (Math.log10(y) >= lo && Math.log10(y) <= hi) ticks.push({ y, label: formatValue(Number(y.toPrecision(3))) });
    }
  }
  return { lo: 10 ** lo, hi: 10 ** hi, log: true, ticks };
}

/** Pixels from the top. */
export function yPixel(value: number, scale: YScale, top: number, height: number): number {
  const share = scale.log
    ? (Math.log10(value) - Math.log10(scale.lo)) / (Math.log10(scale.hi) - Math.log10(scale.lo))
    : (value - scale.lo) / (scale.hi - scale.lo);
  return top + height - share * height;
}
