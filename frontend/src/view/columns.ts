/** What the tables of sessions, restarts, workers and checkpoints show. */

import { isoMoment } from "../logic/csv";
import { formatAtLeast, formatBytes, formatCount, formatDuration, formatMoment } from "../logic/format";
import { hasResumed, RESUMES, reasonsText, resumeOf } from "../logic/resume";
import { OUTCOMES, reasonOf, WORKER_STATES, wordOf } from "../logic/words";
import { stateSince } from "../logic/workers";
import type { Checkpoint, Recovery, Restart, Session, WorkerHistory } from "../types/api";
import { h, pill } from "./element";
import type { Column } from "./table";

const outcome = (name: string): HTMLElement => pill(wordOf(OUTCOMES, name));

export const SESSION_COLUMNS: Column<Session>[] = [
  {
    name: "#",
    number: true,
    show: (s) => String(s.attempt),
    csv: [
      ["attempt", (s) => s.attempt],
      ["id", (s) => s.id],
    ],
  },
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
    show: (s) => `${formatCount(s.first_step)} → ${formatCount(s.last_step)}${s.adopted ? ", model kept" : ""}`,
    csv: [
      ["first_step", (s) => s.first_step],
      ["last_step", (s) => s.last_step],
      ["adopted", (s) => s.adopted],
    ],
  },
  {
    name: "Resume",
    show: (s) => (hasResumed(s) ? pill(RESUMES[resumeOf(s)]) : "–"),
    csv: [["resume_exact", (s) => s.resume_exact]],
  },
  {
    name: "Why not exact",
    wide: true,
    show: (s) => reasonsText(s),
    csv: [["resume_reasons", (s) => s.resume_reasons.join("; ")]],
  },
  {
    name: "Host",
    show: (s) => s.host ?? "–",
    csv: [
      ["host", (s) => s.host],
      ["pid", (s) => s.pid],
    ],
  },
  {
    name: "Error or signal",
    wide: true,
    show: (s) => s.error ?? s.signal ?? "",
    csv: [
      ["error", (s) => s.error],
      ["signal", (s) => s.signal],
    ],
  },
];

/** A restart, and the session after it. */
export interface RestartRow {
  restart: Restart;
  after: Session | undefined;
}

export const RESTART_COLUMNS: Column<RestartRow>[] = [
  { name: "At", show: ({ restart: r }) => formatMoment(r.at), csv: [["at", ({ restart: r }) => isoMoment(r.at)]] },
  {
    name: "Reason",
    show: ({ restart: r }) => pill(reasonOf(r)),
    csv: [
      ["reason", ({ restart: r }) => r.reason],
      ["inferred", ({ restart: r }) => r.inferred],
    ],
  },
  {
    name: "Last step",
    number: true,
    show: ({ restart: r }) => formatCount(r.from_step),
    csv: [["from_step", ({ restart: r }) => r.from_step]],
  },
  {
    name: "Resumed at",
    number: true,
    show: ({ restart: r }) => formatCount(r.to_step),
    csv: [["to_step", ({ restart: r }) => r.to_step]],
  },
  {
    name: "Recomputed",
    number: true,
    show: ({ restart: r }) =>
      r.rewind_steps == null ? formatCount(null) : formatAtLeast(r.rewind_steps, r.rewind_steps_most),
    csv: [
      ["rewind_steps", ({ restart: r }) => r.rewind_steps],
      ["rewind_steps_most", ({ restart: r }) => r.rewind_steps_most],
    ],
  },
  {
    name: "Downtime",
    number: true,
    show: ({ restart: r }) => formatDuration(r.downtime_secs),
    csv: [["downtime_secs", ({ restart: r }) => r.downtime_secs]],
  },
  {
    name: "Resume",
    show: ({ after }) => pill(RESUMES[resumeOf(after)]),
    csv: [["resume_exact", ({ after }) => after?.resume_exact ?? null]],
  },
  {
    name: "Launch",
    wide: true,
    show: ({ restart: r }) => r.launch?.text ?? "",
    csv: [["launch", ({ restart: r }) => r.launch?.text ?? null]],
  },
];

export const RECOVERY_COLUMNS: Column<Recovery>[] = [
  {
    name: "At",
    show: (r) => formatMoment(r.at),
    csv: [
      ["at", (r) => isoMoment(r.at)],
      ["session", (r) => r.session],
    ],
  },
  { name: "Lost", number: true, show: (r) => `${formatCount(r.losses)}×`, csv: [["losses", (r) => r.losses]] },
  { name: "Took", number: true, show: (r) => formatDuration(r.secs), csv: [["secs", (r) => r.secs]] },
  { name: "Last step", number: true, show: (r) => formatCount(r.from_step), csv: [["from_step", (r) => r.from_step]] },
  { name: "Resumed at", number: true, show: (r) => formatCount(r.to_step), csv: [["to_step", (r) => r.to_step]] },
  {
    name: "Recomputed",
    number: true,
    show: (r) => formatCount(r.rewind_steps),
    csv: [["rewind_steps", (r) => r.rewind_steps]],
  },
  { name: "Error", wide: true, show: (r) => r.error, csv: [["error", (r) => r.error]] },
  {
    name: "Restored",
    wide: true,
    show: (r) => r.restored_checkpoint ?? "–",
    csv: [["restored_checkpoint", (r) => r.restored_checkpoint]],
  },
];

export const WORKER_COLUMNS: Column<WorkerHistory>[] = [
  { name: "Worker", show: (w) => w.name, csv: [["worker", (w) => w.name]] },
  {
    name: "State",
    show: (w) => pill(wordOf(WORKER_STATES, w.state), w.present ? "" : " Last reported by an earlier session."),
    csv: [
      ["state", (w) => w.state],
      ["present", (w) => w.present],
    ],
  },
  { name: "Since", show: (w) => formatMoment(stateSince(w)), csv: [["since", (w) => isoMoment(stateSince(w))]] },
  { name: "Last seen", show: (w) => formatMoment(w.last_seen), csv: [["last_seen", (w) => isoMoment(w.last_seen)]] },
  {
    name: "Step",
    number: true,
    show: (w) => formatCount(w.step),
    csv: [
      ["step", (w) => w.step],
      ["steps", (w) => w.steps],
    ],
  },
  { name: "Processes", number: true, show: (w) => formatCount(w.starts), csv: [["starts", (w) => w.starts]] },
  {
    name: "Phase",
    show: (w) => (w.state === "waiting" && w.waiting_for ? `waits for ${w.waiting_for}` : (w.phase ?? "–")),
    csv: [
      ["phase", (w) => w.phase],
      ["waiting_for", (w) => w.waiting_for],
    ],
  },
  {
    name: "Host",
    show: (w) => (w.pid == null ? (w.host ?? "–") : `${w.host ?? "–"}, ${w.pid}`),
    csv: [
      ["host", (w) => w.host],
      ["pid", (w) => w.pid],
    ],
  },
  { name: "Error", wide: true, show: (w) => w.error ?? "", csv: [["error", (w) => w.error]] },
];

export const CHECKPOINT_COLUMNS: Column<Checkpoint>[] = [
  { name: "Step", number: true, show: (c) => formatCount(c.step), csv: [["step", (c) => c.step]] },
  { name: "At", show: (c) => formatMoment(c.at), csv: [["at", (c) => isoMoment(c.at)]] },
  {
    name: "Save",
    show: (c) => (c.ok ? h("span", {}, "◆ saved") : h("span", { class: "bad-text" }, "✕ failed")),
    csv: [["ok", (c) => c.ok]],
  },
  {
    name: "Status",
    wide: true,
    show: (c) =>
      !c.ok ? "–" : h("span", { class: c.damage ? "bad-text" : c.doubt ? "warn-text" : "" }, c.status || "not known"),
    csv: [
      ["status", (c) => c.status],
      ["on_disk", (c) => c.on_disk],
      ["doubt", (c) => c.doubt],
      ["damage", (c) => c.damage],
    ],
  },
  { name: "Size", number: true, show: (c) => formatBytes(c.bytes), csv: [["bytes", (c) => c.bytes]] },
  { name: "Took", number: true, show: (c) => formatDuration(c.save_secs), csv: [["save_secs", (c) => c.save_secs]] },
  {
    name: "Blocked",
    number: true,
    show: (c) => formatDuration(c.blocked_secs),
    csv: [["blocked_secs", (c) => c.blocked_secs]],
  },
  {
    name: "Why",
    show: (c) => c.trigger ?? "–",
    csv: [
      ["trigger", (c) => c.trigger],
      ["session", (c) => c.session],
    ],
  },
  {
    name: "Path or error",
    wide: true,
    show: (c) => c.error ?? c.path ?? "",
    csv: [
      ["path", (c) => c.path],
      ["error", (c) => c.error],
      ["consistent", (c) => c.consistent],
      ["verified", (c) => c.verified],
    ],
  },
];
