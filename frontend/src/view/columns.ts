/** What the tables of sessions, restarts, workers and checkpoints show. */

import { isoMoment } from "../logic/csv";
import { formatAtLeast, formatBytes, formatCount, formatDuration, formatMoment } from "../logic/format";
import { evidenceText, hasResumed, RESUMES, resumeOf } from "../logic/resume";
import { OUTCOMES, reasonOf, WORKER_STATES, wordOf } from "../logic/words";
import { stateSince } from "../logic/workers";
import type { Checkpoint, Recovery, Restart, Session, WorkerHistory } from "../types/api";
import { h, pill } from "./element";
import type { Column } from "./table";

/** Of rows that have this under a key. */
type Having<Key extends string, Value> = { readonly [key in Key]: Value | null | undefined };

/** A column of one number; in CSV it is as it came. */
const number = <Key extends string, Row extends Having<Key, number>>(
  name: string,
  key: Key & keyof Row,
  show: (value: number | null | undefined) => string = formatCount,
): Column<Row> => ({ name, number: true, show: (row) => show(row[key]), csv: [key as keyof Row & string] });

/** A column of one moment; in CSV it is in UTC. */
const moment = <Key extends string, Row extends Having<Key, number>>(
  name: string,
  key: Key & keyof Row,
): Column<Row> => ({
  name,
  show: (row) => formatMoment(row[key]),
  csv: [[key, (row) => isoMoment(row[key] ?? null)]],
});

/** A column of one text, which may be long. */
const text = <Key extends string, Row extends Having<Key, string>>(
  name: string,
  key: Key & keyof Row,
  none = "",
): Column<Row> => ({ name, wide: true, show: (row) => row[key] ?? none, csv: [key as keyof Row & string] });

export const SESSION_COLUMNS: Column<Session>[] = [
  { name: "#", number: true, show: (s) => String(s.attempt), csv: ["attempt", "id"] },
  { name: "Ended", show: (s) => pill(wordOf(OUTCOMES, s.outcome)), csv: ["outcome"] },
  moment("From", "started"),
  moment("Until", "ended"),
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
    csv: ["first_step", "last_step", "adopted"],
  },
  { name: "Resume", show: (s) => (hasResumed(s) ? pill(RESUMES[resumeOf(s)]) : "–"), csv: ["resume_exact"] },
  {
    name: "Evidence",
    wide: true,
    show: evidenceText,
    csv: [
      ["resume_reasons", (s) => s.resume_reasons.join("; ")],
      ["resume_check", (s) => s.resume_check?.text],
    ],
  },
  { name: "Host", show: (s) => s.host ?? "–", csv: ["host", "pid"] },
  { name: "Error or signal", wide: true, show: (s) => s.error ?? s.signal ?? "", csv: ["error", "signal"] },
];

/** A restart, and the session after it. */
export interface RestartRow extends Restart {
  after: Session | undefined;
}

export const RESTART_COLUMNS: Column<RestartRow>[] = [
  moment("At", "at"),
  { name: "Reason", show: (r) => pill(reasonOf(r)), csv: ["reason", "inferred"] },
  number("Last step", "from_step"),
  number("Resumed at", "to_step"),
  {
    name: "Recomputed",
    number: true,
    show: (r) => (r.rewind_steps == null ? formatCount(null) : formatAtLeast(r.rewind_steps, r.rewind_steps_most)),
    csv: ["rewind_steps", "rewind_steps_most"],
  },
  number("Downtime", "downtime_secs", formatDuration),
  {
    name: "Resume",
    show: ({ after }) => pill(RESUMES[resumeOf(after)]),
    csv: [["resume_exact", ({ after }) => after?.resume_exact]],
  },
  { name: "Launch", wide: true, show: (r) => r.launch?.text ?? "", csv: [["launch", (r) => r.launch?.text]] },
];

export const RECOVERY_COLUMNS: Column<Recovery>[] = [
  { name: "At", show: (r) => formatMoment(r.at), csv: [["at", (r) => isoMoment(r.at)], "session"] },
  { name: "Lost", number: true, show: (r) => `${formatCount(r.losses)}×`, csv: ["losses"] },
  number("Took", "secs", formatDuration),
  number("Last step", "from_step"),
  number("Resumed at", "to_step"),
  number("Recomputed", "rewind_steps"),
  text("Error", "error"),
  text("Restored", "restored_checkpoint", "–"),
];

export const WORKER_COLUMNS: Column<WorkerHistory>[] = [
  { name: "Worker", show: (w) => w.name, csv: [["worker", (w) => w.name]] },
  {
    name: "State",
    show: (w) => pill(wordOf(WORKER_STATES, w.state), w.present ? "" : " Last reported by an earlier session."),
    csv: ["state", "present"],
  },
  { name: "Since", show: (w) => formatMoment(stateSince(w)), csv: [["since", (w) => isoMoment(stateSince(w))]] },
  moment("Last seen", "last_seen"),
  { name: "Step", number: true, show: (w) => formatCount(w.step), csv: ["step", "steps"] },
  number("Processes", "starts"),
  {
    name: "Phase",
    show: (w) => (w.state === "waiting" && w.waiting_for ? `waits for ${w.waiting_for}` : (w.phase ?? "–")),
    csv: ["phase", "waiting_for"],
  },
  {
    name: "Host",
    show: (w) => (w.pid == null ? (w.host ?? "–") : `${w.host ?? "–"}, ${w.pid}`),
    csv: ["host", "pid"],
  },
  text("Error", "error"),
];

export const CHECKPOINT_COLUMNS: Column<Checkpoint>[] = [
  number("Step", "step"),
  moment("At", "at"),
  {
    name: "Save",
    show: (c) => h("span", { class: c.ok ? "" : "bad-text" }, c.ok ? "◆ saved" : "✕ failed"),
    csv: ["ok"],
  },
  {
    name: "Status",
    wide: true,
    show: (c) =>
      !c.ok ? "–" : h("span", { class: c.damage ? "bad-text" : c.doubt ? "warn-text" : "" }, c.status || "not known"),
    csv: ["status", "on_disk", "doubt", "damage"],
  },
  number("Size", "bytes", formatBytes),
  number("Took", "save_secs", formatDuration),
  number("Blocked", "blocked_secs", formatDuration),
  { name: "Why", show: (c) => c.trigger ?? "–", csv: ["trigger", "session"] },
  {
    name: "Path or error",
    wide: true,
    show: (c) => c.error ?? c.path ?? "",
    csv: ["path", "error", "consistent", "verified"],
  },
];
