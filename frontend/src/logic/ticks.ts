/** Round places on an axis, and what is written at them. */
import { pad } from "./format";
import type { View } from "./view";

export interface Tick {
  x: number;
  label: string;
  /** A day begins here: drawn stronger. */
  strong?: boolean;
}

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;
const TIME_STEPS = [
  1,
  2,
  5,
  10,
  15,
  30,
  MINUTE,
  2 * MINUTE,
  5 * MINUTE,
  10 * MINUTE,
  15 * MINUTE,
  30 * MINUTE,
  HOUR,
  2 * HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
  DAY,
  2 * DAY,
  7 * DAY,
  14 * DAY,
  30 * DAY,
  90 * DAY,
  365 * DAY,
];

/** The smallest of 1, 2, 5 times a power of ten that is not below `raw`. */
export function niceStep(raw: number): number {
  if (!(raw > 0) || !Number.isFinite(raw)) return 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  for (const digit of [1, 2, 5, 10]) if (digit * power >= raw * (1 - 1e-9)) return digit * power;
  return 10 * power;
}

function timeStep(raw: number): number {
  if (raw < 1) return niceStep(raw);
  return TIME_STEPS.find((step) => step >= raw) ?? niceStep(raw / (365 * DAY)) * 365 * DAY;
}

function places(view: View, step: number, shift = 0): number[] {
  const first = Math.ceil((view.lo - shift) / step);
  const last = Math.floor((view.hi - shift) / step);
  const found: number[] = [];
  for (let i = first; i <= last && found.length < 1000; i++) found.push(i * step + shift);
  return found;
}

export function stepTicks(view: View, most: number): Tick[] {
  const step = Math.max(1, niceStep((view.hi - view.lo) / most));
  return places(view, step).map((x) => ({ x, label: shortCount(x) }));
}

function shortCount(x: number): string {
  const size = Math.abs(x);
  if (size >= 1e9) return `${Number((x / 1e9).toFixed(3))} G`;
  if (size >= 1e6) return `${Number((x / 1e6).toFixed(3))} M`;
  if (size >= 1e4) return `${Number((x / 1e3).toFixed(3))} k`;
  return Math.round(x).toLocaleString("en-US");
}

export function durationTicks(view: View, most: number): Tick[] {
  const step = timeStep((view.hi - view.lo) / most);
  return places(view, step).map((x) => ({ x, label: clockDuration(x, step) }));
}

function clockDuration(secs: number, step: number): string {
  if (secs === 0) return "0";
  const unit = secs >= DAY && step % HOUR === 0 ? DAY : secs >= HOUR ? HOUR : secs >= MINUTE ? MINUTE : 1;
  const name = unit === DAY ? "d" : unit === HOUR ? "h" : unit === MINUTE ? "min" : "s";
  const big = Math.floor(secs / unit + 1e-9);
  const rest = Math.round(secs - big * unit);
  if (unit === 1) return `${Number(secs.toPrecision(6))} s`;
  if (rest === 0) return `${big} ${name}`;
  if (unit === DAY) return `${big} d ${Math.round(rest / HOUR)} h`;
  if (unit === HOUR)
    return rest % MINUTE
      ? `${big}:${pad(rest / MINUTE)}:${pad(rest % MINUTE)}`
      : `${big} h ${Math.round(rest / MINUTE)} min`;
  return `${big}:${pad(rest)} min`;
}

const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

/** Ticks of local time. `offset` is how far local time is ahead of UTC at a moment, in seconds. */
export function clockTicks(view: View, most: number, offset: (at: number) => number = localOffset): Tick[] {
  const step = timeStep((view.hi - view.lo) / most);
  const ahead = offset(view.lo);
  let day = "";
  return places(view, step, -ahead).map((x) => {
    const d = new Date((x + ahead) * 1000);
    const date = `${MONTHS[d.getUTCMonth()]} ${d.getUTCDate()}`;
    const midnight = (x + ahead) % DAY === 0;
    const time = `${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}${step < MINUTE ? `:${pad(d.getUTCSeconds())}` : ""}`;
    const fraction = step < 1 ? (x % 1).toFixed(3).slice(1) : "";
    const first = day === "";
    const changed = date !== day;
    day = date;
    if (step >= 300 * DAY) return { x, label: String(d.getUTCFullYear()), strong: true };
    if (midnight || step >= DAY) return { x, label: date, strong: changed && step < DAY };
    return { x, label: first || changed ? `${date} ${time}${fraction}` : `${time}${fraction}` };
  });
}

function localOffset(at: number): number {
  return -new Date(at * 1000).getTimezoneOffset() * 60;
}
