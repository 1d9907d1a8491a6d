/** The column of a run's checkpoints that says what their numbers are: each is read when somebody asks for it. */
import { BackendError, client } from "../net/client";
import type { Checkpoint } from "../types/api";
import type { CheckpointValues } from "../types/checkpoint_values";
import { copyButton } from "./copy";
import { h } from "./element";
import type { Column } from "./table";

const AGAIN_MS = 1_000;

const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

export class ValuesColumn implements Column<Checkpoint> {
  readonly name = "Values";
  readonly wide = true;
  readonly csv = [];
  /** The cells stay when the table is made again. */
  readonly #cells = new Map<string, HTMLElement>();
  readonly #end = new AbortController();

  constructor(private readonly run: string) {}

  show = ({ ok, on_disk, path, step, at }: Checkpoint): string | Node => {
    if (!ok || on_disk === false || path == null) return "–";
    const key = `${at} ${path}`;
    let cell = this.#cells.get(key);
    if (!cell) {
      cell = h("div", { role: "status" });
      this.#cells.set(key, cell);
      this.#offer(cell, path, step);
    }
    return cell;
  };

  close(): void {
    this.#end.abort();
  }

  #offer(cell: HTMLElement, path: string, step: number | null, problem = ""): void {
    const name = `Check the values at step ${step ?? "unknown"}`;
    const onclick = (): void => void this.#check(cell, path, step);
    cell.replaceChildren(problem, h("button", { "aria-label": name, onclick }, "Check"));
  }

  async #check(cell: HTMLElement, path: string, step: number | null): Promise<void> {
    cell.replaceChildren("Reading");
    while (!this.#end.signal.aborted) {
      try {
        show(cell, await client.checkpointValues(this.run, path, this.#end.signal));
        return;
      } catch (error) {
        if (this.#end.signal.aborted) return;
        if (!(error instanceof BackendError)) throw error;
        if (error.kind !== "starting") {
          this.#offer(cell, path, step, error.message);
          return;
        }
        cell.replaceChildren(error.message);
        await new Promise((resume) => window.setTimeout(resume, AGAIN_MS));
      }
    }
  }
}

function show(cell: HTMLElement, { before, problem, values, change, change_problem, command }: CheckpointValues): void {
  const isBad = problem != null || values?.has_nan;
  cell.replaceChildren(
    h("div", { class: isBad ? "bad-text" : "" }, `${isBad ? "✕" : "✓"} ${values?.summary ?? problem ?? ""}`),
  );
  const since = change?.summary ?? change_problem;
  if (before != null && since != null) cell.append(h("div", {}, `Since ${baseName(before)}: ${since}`));
  if (command != null) cell.append(copyButton(() => command, { title: command }));
}
