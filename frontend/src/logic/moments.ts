/** Moments for machines. */

/** ISO 8601 in UTC, to the millisecond; empty where not known. */
export function isoMoment(at: number | null): string {
  return at == null || !Number.isFinite(at) || Math.abs(at) > 8e12 ? "" : new Date(at * 1000).toISOString();
}
