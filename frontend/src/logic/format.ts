/** Numbers, durations, sizes and moments in words for people. What is not known is a dash. */

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function formatCount(value: number | null | undefined): string {
  return value == null || !Number.isFinite(value) ? UNKNOWN : whole.format(value);
}

/** A measured value with four digits that mean something. */
export function formatValue(value: number | null | undefined): string {
  if (value == null) return UNKNOWN;
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) {
    const [digits, power] = value.toExponential(3).split("e") as [string, string];
    return `${Number(digits)}e${Number(power)}`;
  }
  return size >= 1000 ? whole.format(value) : String(Number(value.toPrecision(4)));
}

export function formatRate(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return UNKNOWN;
  return value >= 100 ? whole.format(value) : value >= 1 ? value.toFixed(1) : String(Number(value.toPrecision(2)));
}

/** Two units at most: `3 d 4 h`, `12 min 5 s`, `1.5 s`, `20 ms`. */
export function formatDuration(secs: number | null | undefined): string {
  if (secs == null || !Number.isFinite(secs)) return UNKNOWN;
  if (secs < 0) return `−${formatDuration(-secs)}`;
  if (secs === 0) return "0 s";
  if (secs < 0.9995) return secs < 0.001 ? "< 1 ms" : `${Math.round(secs * 1000)} ms`;
  if (secs < 9.95) return `${Number(secs.toFixed(1))} s`;
  const s = Math.round(secs);
  if (s < 60) return `${s} s`;
  if (s < 3600) return pair(s, 60, "min", "s");
  if (s < 86400) return pair(Math.round(s / 60), 60, "h", "min");
  return pair(Math.round(s / 3600), 24, "d", "h");
}

function pair(count: number, per: number, big: string, small: string): string {
  const rest = count % per;
  return rest ? `${Math.floor(count / per)} ${big} ${rest} ${small}` : `${Math.floor(count / per)} ${big}`;
}

/** Decimal units, as disks are sold and `ls` is not. */
export function formatBytes(bytes: number | null | undefined): string {
  if (bytes == null || !Number.isFinite(bytes)) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 ? value : Number(value.toPrecision(3))} ${units[unit]}`;
}

/** A share from 0 to 1; never `100 %` or `0 %` where it is not quite. */
export function formatShare(share: number | null | undefined): string {
  if (share == null || !Number.isFinite(share)) return UNKNOWN;
  const percent = share * 100;
  if (percent > 0 && percent < 0.05) return "< 0.1 %";
  if (percent < 100 && percent >= 99.95) return "> 99.9 %";
  return `${Number(percent.toFixed(1))} %`;
}

/** A whole number in two digits, for times of day. */
export const pad = (n: number): string => String(Math.floor(n)).padStart(2, "0");

/** Some writers leave times 0: those are not known. */
const isKnown = (at: number | null | undefined): at is number => at != null && Number.isFinite(at) && at > 0;

/** Local date and time, to the second: sorts as text, and can be pasted. */
export function formatMoment(at: number | null | undefined): string {
  if (!isKnown(at)) return UNKNOWN;
  const d = new Date(at * 1000);
  const day = `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;
  return `${day} ${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
}

/** Date and time in UTC: the same wherever it is read. */
export const formatUtc = (at: number): string =>
  `${new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** The present time by the clock of a run's machine, by which its times are. */
export function itsNow(run: { clock_skew_secs: number | null }, now: number): number {
  return now + (run.clock_skew_secs ?? 0);
}

export function formatAgo(at: number | null | undefined, now: number): string {
  if (!isKnown(at)) return UNKNOWN;
  const secs = Math.max(0, now - at);
  return secs < 1.5 ? "now" : `${roughDuration(secs)} ago`;
}

/** One unit: for lists that are looked over, not read. */
export function roughDuration(secs: number | null | undefined): string {
  if (secs == null || !Number.isFinite(secs)) return UNKNOWN;
  if (secs < 60) return `${Math.round(secs)} s`;
  if (secs < 3600) return `${Math.round(secs / 60)} min`;
  if (secs < 36 * 3600) return `${Number((secs / 3600).toFixed(1))} h`;
  const days = Math.round(secs / 86400);
  return days < 730 ? `${days} d` : `${Number((days / 365.25).toFixed(1))} y`;
}

/** The beginning of a long text, such as an error that holds a whole graph. */
export function brief(text: string, most = 200): string {
  return text.length > most ? `${text.slice(0, most).trimEnd()}…` : text;
}

/** Steps of which a kill took the last count: `at least 40`, `40 to 52`, or `40` where that is exact. */
export function formatAtLeast(least: number, most: number | null): string {
  if (most === null) return `at least ${formatCount(least)}`;
  return most > least ? `${formatCount(least)} to ${formatCount(most)}` : formatCount(least);
}

/** What a run is called on the screen: the logdir itself, which TensorBoard names `.`, by its directory's name. */
export function titleOf(run: string, logdir: string): string {
  if (run !== ".") return run;
  return (
    logdir
      .split(/[\\/]+/)
      .filter((part) => part !== "" && part !== ".")
      .at(-1) ?? run
  );
}

/** The zone of local time at a moment, by its distance from UTC. */
export function zoneOf(at: number): string {
  const minutes = -new Date(at * 1000).getTimezoneOffset();
  if (!minutes) return "UTC";
  const rest = Math.abs(minutes) % 60;
  return `UTC${minutes < 0 ? "−" : "+"}${Math.floor(Math.abs(minutes) / 60)}${rest ? `:${pad(rest)}` : ""}`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}
