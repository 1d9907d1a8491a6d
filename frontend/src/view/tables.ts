/** What people copy: restarts, sessions, workers, checkpoints page by page; each can be had as CSV. */
import { fileName } from "../logic/csv";
import { formatCount, plural } from "../logic/format";
import { worstFirst } from "../logic/workers";
import { BackendError, client, Latest } from "../net/client";
import type { Checkpoint, RunDetail, WorkerHistory } from "../types/api";
import { CHECKPOINT_COLUMNS, RECOVERY_COLUMNS, RESTART_COLUMNS, SESSION_COLUMNS, WORKER_COLUMNS } from "./columns";
import { h, iconButton, refresh, setText } from "./element";
import type { Column } from "./table";
import { csvOf, download, makeTable } from "./table";

const PAGE = 25;
const BATCH = 10_000;
/** Of a table without pages; the CSV has all. */
const MOST_ROWS = 500;

export class Tables {
  readonly #restarts = h("div", {});
  readonly #recoveries = h("div", {});
  readonly #workers = h("div", { class: "workers" });
  readonly #sessions = h("div", {});
  readonly #checkpoints = h("div", {});
  readonly #problems = h("div", {});
  readonly element = h(
    "div",
    { class: "tables" },
    this.#restarts,
    this.#recoveries,
    this.#workers,
    this.#checkpoints,
    this.#sessions,
    this.#problems,
  );
  readonly #latest = new Latest();
  #offset = 0;
  #shown = "";
  #shownWorkers = "";

  constructor(private readonly run: string) {}

  update(detail: RunDetail, workers: readonly WorkerHistory[]): void {
    const key = JSON.stringify([detail.restarts, detail.recoveries, detail.sessions, detail.problems]);
    if (key !== this.#shown) {
      this.#shown = key;
      const byId = new Map(detail.sessions.map((session) => [session.id, session]));
      const restarts = detail.restarts.map((restart) => ({ ...restart, after: byId.get(restart.to_session) }));
      this.#fillPlain(this.#restarts, "Restarts", RESTART_COLUMNS, restarts.reverse());
      this.#fillPlain(this.#sessions, "Sessions", SESSION_COLUMNS, [...detail.sessions].reverse());
      this.#fillPlain(
        this.#recoveries,
        "Restarts within a session",
        RECOVERY_COLUMNS,
        [...detail.recoveries].reverse(),
      );
      this.#showProblems(detail);
    }
    this.#showWorkers(worstFirst(workers));
    void this.#load();
  }

  close(): void {
    this.#latest.cancel();
  }

  #fillPlain<Row>(box: HTMLElement, name: string, columns: Column<Row>[], rows: Row[]): void {
    box.hidden = rows.length === 0;
    if (!rows.length) return;
    const save = (): void => download(fileName(this.run, name.toLowerCase()), csvOf(columns, rows));
    const rest =
      rows.length > MOST_ROWS
        ? [h("span", { class: "muted" }, `the first ${formatCount(MOST_ROWS)} are shown; the CSV has all`)]
        : [];
    refresh(box, this.#head(name, rows.length, save, ...rest), makeTable(name, columns, rows.slice(0, MOST_ROWS)));
  }

  #showWorkers(rows: WorkerHistory[]): void {
    const key = JSON.stringify(rows.map(({ spans, ...rest }) => [rest, spans.length]));
    if (key === this.#shownWorkers) return;
    this.#shownWorkers = key;
    this.#fillPlain(this.#workers, "Workers", WORKER_COLUMNS, rows);
  }

  #head(name: string, count: number, save: () => void | Promise<void>, ...more: HTMLElement[]): HTMLElement {
    return h(
      "div",
      { class: "table-head" },
      h("h2", {}, name),
      h("span", { class: "muted num" }, formatCount(count)),
      ...more,
      h("button", { onclick: () => void save(), "aria-label": `Download ${name.toLowerCase()} as CSV` }, "CSV"),
    );
  }

  #showProblems(detail: RunDetail): void {
    this.#problems.hidden = detail.problems.length === 0;
    const list = h("ul", {});
    for (const problem of detail.problems.slice(0, 200)) {
      const where = problem.offset == null ? problem.path : `${problem.path}, byte ${formatCount(problem.offset)}`;
      list.append(h("li", {}, h("code", {}, where), `: ${problem.text}`));
    }
    refresh(this.#problems, h("h2", {}, `Could not be read: ${plural(detail.problems.length, "place")}`), list);
  }

  async #load(): Promise<void> {
    try {
      const page = await this.#latest.ask((signal) =>
        client.checkpoints(this.run, this.#offset, PAGE, "newest", signal),
      );
      if (!page) return;
      if (page.total > 0 && this.#offset >= page.total) {
        this.#offset = 0;
        await this.#load();
        return;
      }
      this.#showPage(page.checkpoints, page.total);
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
    }
  }

  #showPage(rows: Checkpoint[], total: number): void {
    this.#checkpoints.hidden = total === 0;
    const key = JSON.stringify([rows, total]);
    if (this.#checkpoints.dataset.key === key) return;
    this.#checkpoints.dataset.key = key;
    const turn = (by: number, name: string, sign: string): HTMLElement => {
      const button = iconButton(sign, name, name, () => {
        this.#offset = Math.max(0, this.#offset + by);
        void this.#load();
      });
      button.disabled = by < 0 ? this.#offset === 0 : this.#offset + PAGE >= total;
      return button;
    };
    const range = `${formatCount(this.#offset + 1)} to ${formatCount(this.#offset + rows.length)}, newest first`;
    const pager = h(
      "span",
      { class: "pager" },
      turn(-PAGE, "Newer checkpoints", "‹"),
      h("span", { class: "num" }, range),
      turn(PAGE, "Older checkpoints", "›"),
    );
    refresh(
      this.#checkpoints,
      this.#head("Checkpoints", total, () => this.#saveAll(), pager),
      makeTable("Checkpoints", CHECKPOINT_COLUMNS, rows),
    );
  }

  async #saveAll(): Promise<void> {
    const rows: Checkpoint[] = [];
    try {
      for (;;) {
        const page = await client.checkpoints(this.run, rows.length, BATCH, "oldest");
        rows.push(...page.checkpoints);
        if (!page.checkpoints.length || rows.length >= page.total) break;
      }
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      const note = this.#checkpoints.querySelector(".pager .num");
      if (note) setText(note, `No CSV: ${error.message}`);
      return;
    }
    download(fileName(this.run, "checkpoints"), csvOf(CHECKPOINT_COLUMNS, rows));
  }
}
