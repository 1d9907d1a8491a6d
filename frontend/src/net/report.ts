/** A report: the page of one run at one moment, whose answers are in the page (tb_plugin/report.py). */
import { decodeColumns } from "../logic/columns";
import { smoothed } from "../logic/smoothing";
import type {
  CheckpointPage,
  MarksHeader,
  RunDetail,
  RunsAnswer,
  ScalarHeader,
  Stall,
  Tag,
  ThreadHistory,
  WorkerHistory,
} from "../types/api";
import { BackendError } from "./backend_error";
import type { Client } from "./client";

export interface Report {
  run: string;
  /** The moment to which all ages refer. */
  at: number;
  /** Curves of more points may be thinned: these cannot be smoothed. */
  whole_points: number;
  /** What is not in it, in sentences. */
  left_out: string[];
  answers: {
    runs: RunsAnswer;
    run: RunDetail;
    threads: { threads: ThreadHistory[] };
    workers: { workers: WorkerHistory[] };
    stalls: { stalls: Stall[] };
    /** Newest first. */
    checkpoints: CheckpointPage;
    tags: { tags: Tag[] };
  };
  /** Columns in base64. */
  marks: string;
  scalars: Record<string, string>;
}

const ID = "supervisor-report";

function readReport(): Report | null {
  // Tests of what needs no page have none.
  const text = typeof document === "undefined" ? null : document.getElementById(ID)?.textContent;
  return text ? (JSON.parse(text) as Report) : null;
}

/** What this page is a report of; null where a backend answers. */
export const report = readReport();

const bytesOf = (base64: string): ArrayBuffer => Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0)).buffer;

const oneRun = async (): Promise<never> => {
  throw new BackendError("missing", "A report has one run.");
};

/** Answers from the page: all there is, whatever stretch is asked for. */
export function reportClient({ answers, marks, scalars }: Report): Client {
  const curves = new Map(Object.entries(scalars));
  return {
    runs: async () => answers.runs,
    run: async () => answers.run,
    threads: async () => answers.threads.threads,
    workers: async () => answers.workers.workers,
    checkpoints: async (_run, offset, limit, order) => {
      const { checkpoints, total } = answers.checkpoints;
      const ordered = order === "newest" ? checkpoints : checkpoints.toReversed();
      return { total, offset, checkpoints: ordered.slice(offset, offset + limit) };
    },
    checkpointMarks: async () => decodeColumns<MarksHeader>(bytesOf(marks)),
    stalls: async () => answers.stalls.stalls,
    tags: async () => answers.tags.tags,
    scalars: async (_run, tag, { smoothing }) => {
      const curve = curves.get(tag);
      if (curve === undefined) throw new BackendError("missing", "The report has no such curve.");
      const found = decodeColumns<ScalarHeader>(bytesOf(curve));
      // An average of extremes would be none.
      if (smoothing && !found.header.thinned) found.columns.smoothed = smoothed(found, smoothing);
      return found;
    },
    fields: oneRun,
    columns: oneRun,
    compare: oneRun,
    timeline: oneRun,
    incidents: oneRun,
  };
}
