/** Whose a run is, where it runs, and on what. */
import type { RunDetail } from "../types/api";
import { formatCount, plural } from "./format";

/** Labels as they are filtered by: `team=vision`. */
export const labelWords = (labels: Record<string, string>): string[] =>
  Object.entries(labels).map(([name, value]) => `${name}=${value}`);

/** Host, processes and devices of the newest session; empty where it is one process and nothing is known of devices. */
export function placeWords({ sessions }: RunDetail): string {
  const last = sessions.at(-1);
  if (!last) return "";
  const { device_count: count, device_kind: kind, world_size: size } = last;
  const processes = (size ?? 1) > 1 ? plural(size as number, "process", "processes") : "";
  const devices = count ? `${formatCount(count)} × ${kind ?? "device"}` : "";
  const known = [processes, devices].filter(Boolean).join(" on ");
  return known && last.host ? `${known}, ${last.host}` : known;
}
