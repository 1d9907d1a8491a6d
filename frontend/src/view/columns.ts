/** What the tables of sessions, restarts and checkpoints show. */
import { formatBytes, formatCount, formatDuration, formatMoment } from "../logic/format";
import { isoMoment } from "../logic/moments";
import { OUTCOMES, wordOf } from "../logic/words";
import type { Checkpoint, Restart, Session } from "../types/api";
import { h, pill } from "./element";
import type { Column } from "./table";

const outcome = (name: string): HTMLElement => pill(wordOf(OUTCOMES, name));

export const SESSION_COLUMNS: Column<Session>[] = [
  { name: "#", number: true, show: (s) => String(s.attempt), csv: [["attempt", (s) => s.attempt], ["id", (s) => s.id]] },
  { name: "Ended", show: (s) => outcome(s.outcome), csv: [["outcome", (s) => s.outcome]] },
  { name: "From", show: (s) => formatMoment(s.started), csv: [["started", (s) => isoMoment(s.started)]] },
  { name: "Until", show: (s) => formatMoment(s.ended), csv: [["ended", (s) => isoMoment(s.ended)]] },
  {
    name: "Lasted",
    number: true,
    show: (s) => formatDuration(s.started != null && s.ended != null ? s.ended - s.started : null),
    csv: [],
  },
  {
    name: "Steps",
    number: true,
    show: (s) => `${formatCount(s.first_step)} → ${formatCount(s.last_step)}`,
    csv: [["first_step", (s) => s.first_step], ["last_step", (s) => s.last_step]],
  },
  { name: "Host", show: (s) => s.host ?? "–", csv: [["host", (s) => s.host], ["pid", (s) => s.pid]] },
  {
    name: "Error or signal",
    wide: true,
    show: (s) => s.error ?? s.signal ?? "",
    csv: [["error", (s) => s.error], ["signal", (s) => s.signal]],
  },
];

export const RESTART_COLUMNS: Column<Restart>[] = [
  { name: "At", show: (r) => formatMoment(r.at), csv: [["at", (r) => isoMoment(r.at)]] },
  { name: "Reason", show: (r) => outcome(r.reason), csv: [["reason", (r) => r.reason], ["inferred", (r) => r.inferred]] },
  { name: "Got to", number: true, show: (r) => formatCount(r.from_step), csv: [["from_step", (r) => r.from_step]] },
  { name: "Went on from", number: true, show: (r) => formatCount(r.to_step), csv: [["to_step", (r) => r.to_step]] },
  { name: "Done again", number: true, show: (r) => formatCount(r.rewind_steps), csv: [["rewind_steps", (r) => r.rewind_steps]] },
  { name: "Down", number: true, show: (r) => formatDuration(r.downtime_secs), csv: [["downtime_secs", (r) => r.downtime_secs]] },
];

export const CHECKPOINT_COLUMNS: Column<Checkpoint>[] = [
  { name: "Step", number: true, show: (c) => formatCount(c.step), csv: [["step", (c) => c.step]] },
  { name: "At", show: (c) => formatMoment(c.at), csv: [["at", (c) => isoMoment(c.at)]] },
  {
    name: "Save",
    show: (c) => (c.ok ? h("span", {}, "◆ good") : h("span", { class: "bad-text" }, "✕ failed")),
    csv: [["ok", (c) => c.ok]],
  },
  {
    name: "Files",
    show: (c) => (!c.ok ? "–" : c.on_disk === null ? "not known" : c.on_disk ? "on disk" : "gone"),
    csv: [["on_disk", (c) => c.on_disk]],
  },
  { name: "Size", number: true, show: (c) => formatBytes(c.bytes), csv: [["bytes", (c) => c.bytes]] },
  { name: "Took", number: true, show: (c) => formatDuration(c.save_secs), csv: [["save_secs", (c) => c.save_secs]] },
  { name: "Held up", number: true, show: (c) => formatDuration(c.blocked_secs), csv: [["blocked_secs", (c) => c.blocked_secs]] },
  { name: "Why", show: (c) => c.trigger ?? "–", csv: [["trigger", (c) => c.trigger], ["session", (c) => c.session]] },
  {
    name: "Path or error",
    wide: true,
    show: (c) => c.error ?? c.path ?? "",
    csv: [["path", (c) => c.path], ["error", (c) => c.error], ["consistent", (c) => c.consistent], ["verified", (c) => c.verified]],
  },
];
