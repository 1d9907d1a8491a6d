/** One run: what happened, over one axis, with the scalars underneath. */
import type { AxisKind } from "../logic/axis";
import { defaultAxis, hasWallTime } from "../logic/axis";
import { makePlot } from "../logic/plot";
import type { UrlState } from "../logic/url_state";
import { BackendError, client, Latest } from "../net/client";
import { Choices } from "./choices";
import { fill, h, setAttribute } from "./element";
import { FindingList } from "./findings";
import { legend } from "./legend";
import type { Page } from "./page";
import { runPageName } from "./page";
import { Plots } from "./plots";
import type { RunData } from "./run_data";
import { loadRun } from "./run_data";
import { StallList } from "./stalls";
import { Summary } from "./summary";
import { Tables } from "./tables";
import { wholeButton, zoomButtons } from "./zoom";

const AXES: [AxisKind, string, string][] = [
  ["wall", "Wall time", "When it happened"],
  ["relative", "Running time", "Time since the first start, with the gaps clipped in which nothing ran"],
  ["step", "Step", "Global steps: recomputed steps overlap"],
];

const AGAIN_MS = 500;

export class RunPage implements Page {
  readonly #latest = new Latest();
  readonly #latestTags = new Latest();
  readonly #findings = new FindingList();
  readonly #summary = new Summary();
  readonly #stalls = new StallList();
  readonly #tables: Tables;
  readonly #plots: Plots;
  readonly #axes = new Choices("Horizontal axis", AXES, (kind) => this.#setAxis(kind));
  readonly #wholeButton = wholeButton(() => this.change({ zoom: null }, true));
  readonly #body: HTMLElement;
  readonly name: string;
  readonly element: HTMLElement;
  #data: RunData | null = null;
  #now = Date.now() / 1000;
  #plotKey = "";
  #again = 0;
  #loading: Promise<boolean> | null = null;

  constructor(
    readonly run: string,
    private state: UrlState,
    private readonly change: (patch: Partial<UrlState>, replace: boolean) => void,
  ) {
    this.name = runPageName(run);
    this.#tables = new Tables(run);
    // A stretch means something on its own axis only: the address names both.
    const changeView = (patch: Partial<UrlState>, replace: boolean): void =>
      change(patch.zoom ? { axis: this.#plots.kind, ...patch } : patch, replace);
    this.#plots = new Plots(run, changeView, (stall) => this.#stalls.reveal(stall));
    const hint = h(
      "span",
      { class: "hint muted" },
      "Drag to zoom, Ctrl + wheel too; Shift pans; double click shows all",
    );
    this.#body = h(
      "div",
      { class: "run-body" },
      this.#findings.element,
      this.#summary.element,
      h(
        "div",
        { class: "toolbar axis-bar" },
        this.#axes.element,
        ...zoomButtons((factor) => this.#plots.zoomBy(factor)),
        this.#wholeButton,
        legend(),
        hint,
      ),
      this.#plots.element,
      this.#stalls.element,
      this.#tables.element,
    );
    this.element = h(
      "article",
      { class: "run-page", "aria-label": `Run ${run}`, "aria-busy": "true" },
      h("p", { class: "muted" }, "Reading…"),
    );
  }

  /** Ask for what may have changed; whether there was an answer. `changed` null: everything. */
  load(changed: Set<string> | null): Promise<boolean> {
    if (changed && this.#data && !changed.has(this.run)) return Promise.resolve(true);
    // One question at a time: who asks while the first answer is on its way waits for that.
    this.#loading ??= this.#ask().finally(() => (this.#loading = null));
    return this.#loading;
  }

  async #ask(): Promise<boolean> {
    try {
      const data = await this.#latest.ask((signal) => loadRun(this.run, this.#data, signal));
      if (!data) return true;
      if (!this.#data) fill(this.element, this.#body);
      setAttribute(this.element, "aria-busy", null);
      this.#data = data;
      this.#plotKey = "";
      this.#show();
      void this.#loadTags();
      return true;
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      if (error.kind === "missing" || error.kind === "refused") {
        this.#data = null;
        setAttribute(this.element, "aria-busy", null);
        fill(
          this.element,
          h("section", { class: "empty" }, h("h2", {}, "There is no such run"), h("p", {}, error.message)),
        );
        return true;
      }
      return false;
    }
  }

  /** Scalars come when they come: the backend reads them once somebody looks. */
  async #loadTags(): Promise<void> {
    window.clearTimeout(this.#again);
    try {
      const tags = await this.#latestTags.ask((signal) => client.tags(this.run, signal));
      if (tags) this.#plots.setTags(tags);
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      if (error.kind === "starting") this.#again = window.setTimeout(() => void this.#loadTags(), AGAIN_MS);
    }
  }

  update(state: UrlState): void {
    this.state = state;
    this.#show();
  }

  #show(): void {
    const data = this.#data,
      { state } = this;
    if (!data) return;
    const axis = state.axis ?? defaultAxis(data.detail.sessions);
    const key = `${axis} ${state.allWorkers}`;
    if (key !== this.#plotKey) {
      this.#plotKey = key;
      const plot = makePlot(
        data.detail,
        data.marks,
        data.stalls.filter((stall) => !stall.service),
        data.threads,
        data.workers,
        axis,
        state.allWorkers,
      );
      this.#plots.setPlot(plot);
      this.#findings.update(data.detail.findings, this.#now);
      this.#summary.update(data.detail, data.workers, this.#now);
      const hangs = this.#stalls.update(data.stalls, data.detail.sessions.at(-1)?.id);
      // Where it hangs is what to read next; else stalls are history.
      const before = hangs ? this.#summary.element : this.#tables.element;
      if (this.#stalls.element.nextSibling !== before) this.#body.insertBefore(this.#stalls.element, before);
      this.#tables.update(data.detail, data.workers);
    }
    this.#plots.update(state);
    const timed = hasWallTime(data.detail.sessions);
    this.#axes.show(this.#plots.kind, (kind) => timed || kind === "step");
    this.#wholeButton.disabled = state.zoom === null;
  }

  /** The same stretch on another axis, where it is known. */
  #setAxis(axis: AxisKind): void {
    const data = this.#data,
      { state } = this;
    if (!data || axis === this.#plots.kind) return;
    const zoom =
      state.zoom && this.#plots.translate(state.zoom, makePlot(data.detail, data.marks, [], [], [], axis).axis);
    this.change({ axis, zoom }, true);
  }

  tick(now: number): void {
    this.#now = now;
    this.#findings.tick(now);
    this.#summary.tick(now);
  }

  restyle(): void {
    this.#plots.restyle();
  }

  print(printing: boolean): void {
    this.#plots.print(printing);
  }

  focusSearch(): void {
    this.#plots.focusSearch();
  }

  /** Take back the last thing that Escape can; whether there was one. */
  escape(): boolean {
    return this.#plots.escape();
  }

  close(): void {
    window.clearTimeout(this.#again);
    this.#latest.cancel();
    this.#latestTags.cancel();
    this.#tables.close();
    this.#plots.close();
  }
}
