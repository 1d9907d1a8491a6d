/** Chosen runs side by side: their curves over one axis, and their values. */
import type { AxisKind } from "../logic/axis";
import { withoutRuns } from "../logic/choice";
import { formatCount, formatDuration, formatMoment, plural } from "../logic/format";
import { defaultTags } from "../logic/tags";
import type { Chosen, UrlState } from "../logic/url_state";
import { BackendError, client, Latest } from "../net/client";
import { wholeAddress } from "../net/host";
import type { Tag } from "../types/api";
import type { CompareAnswer } from "../types/compare";
import { Choices } from "./choices";
import { CompareCharts } from "./compare_charts";
import { CompareLegend } from "./compare_legend";
import { CompareTable } from "./compare_table";
import { copyFrom } from "./copy";
import { fill, h, setAttribute } from "./element";
import type { Page } from "./page";
import { TagPicker } from "./tag_picker";
import { wholeButton, zoomButtons } from "./zoom";

const AXES: [AxisKind, string, string][] = [
  ["step", "Step", "Global steps"],
  ["relative", "Running time", "Time in which a run ran: what lies between its sessions is cut out"],
  ["wall", "Wall time", "When it happened"],
];

const AGAIN_MS = 500;
/** That the backend takes in one question. */
const MOST_TAGS = 20;
const COPY_LINK = "Copy link";

const PLACES: Readonly<Record<AxisKind, (x: number) => string>> = {
  step: (x) => `at step ${formatCount(x)}`,
  relative: (x) => `after ${formatDuration(x)}`,
  wall: (x) => `at ${formatMoment(x)}`,
};

export class ComparePage implements Page {
  readonly name = "compare";
  readonly #latest = new Latest();
  readonly #picker: TagPicker;
  readonly #charts: CompareCharts;
  readonly #legend: CompareLegend;
  readonly #table: CompareTable;
  readonly #axes = new Choices("Horizontal axis", AXES, (kind) => this.#setAxis(kind));
  readonly #wholeButton = wholeButton(() => this.#charts.whole());
  readonly #problems = h("ul", { class: "note", role: "status" });
  readonly #body: HTMLElement;
  readonly element = h("article", { class: "compare-page", "aria-label": "Compare", "aria-busy": "true" });
  #answer: CompareAnswer | null = null;
  /** What was asked for last. */
  #asked = "";
  #again = 0;
  /** Runs of which there may be newer scalars than those in the answer. */
  #beingRead: ReadonlySet<string> = new Set();
  #reading = 0;
  #hovered: string | null = null;

  constructor(
    private state: UrlState,
    private readonly change: (patch: Partial<UrlState>, replace: boolean) => void,
  ) {
    this.#picker = new TagPicker(change, ({ points }) => plural(points, "run"));
    this.#charts = new CompareCharts({
      change,
      moved: () => this.#read(),
      hovered: (run) => this.#hover(run),
      hide: (tag) => change({ tags: this.#charts.tags.filter((name) => name !== tag) }, true),
    });
    this.#legend = new CompareLegend({
      open: (run) => change({ run, zoom: null, tags: null }, false),
      pin: (baseline) => change({ baseline }, true),
      remove: (run) => this.#remove(run),
      hovered: (run) => this.#hover(run),
      chooseTag: (tag) => {
        this.#charts.tag = tag;
        this.#read();
      },
    });
    this.#table = new CompareTable(change, (run) => this.#hover(run));
    const link = h(
      "button",
      { title: "Copy the address of exactly this view", onclick: () => void copyLink() },
      COPY_LINK,
    );
    const copyLink = (): Promise<void> => copyFrom(link, wholeAddress(), COPY_LINK);
    this.#body = h(
      "div",
      { class: "compare-body" },
      h(
        "div",
        { class: "toolbar axis-bar" },
        this.#axes.element,
        ...zoomButtons((factor) => this.#charts.zoomBy(factor)),
        this.#wholeButton,
        this.#picker.element,
        link,
      ),
      this.#problems,
      this.#table.element,
      h("div", { class: "compare-views" }, this.#charts.element, this.#legend.element),
    );
  }

  update(state: UrlState): void {
    this.state = state;
    if (!state.chosen.length) {
      this.#answer = null;
      this.#asked = "";
      window.clearTimeout(this.#again);
      this.#latest.cancel();
      setAttribute(this.element, "aria-busy", null);
      fill(this.element, nothingChosen());
      return;
    }
    this.#show();
    void this.#ask(false);
  }

  async load(changed: Set<string> | null): Promise<boolean> {
    const { chosen } = this.state;
    if (!chosen.length || (changed && this.#answer && !chosen.some(({ run }) => changed.has(run)))) return true;
    const answered = await this.#ask(true);
    this.#charts.refresh(changed);
    return answered;
  }

  /** Ask for what is known of the runs; again only where something else is wanted, or something may have changed. */
  async #ask(again: boolean): Promise<boolean> {
    const runs = this.state.chosen.map(({ run }) => run);
    const tags = this.#wantedTags();
    const asked = JSON.stringify([runs, tags]);
    if (!again && asked === this.#asked) return true;
    this.#asked = asked;
    window.clearTimeout(this.#again);
    try {
      const answer = await this.#latest.ask((signal) => client.compare(runs, tags, signal));
      if (!answer) return true;
      this.#answer = answer;
      const reading = new Set(answer.runs.flatMap(({ run, reading }) => (reading ? [run] : [])));
      const read = [...this.#beingRead].filter((run) => !reading.has(run));
      this.#beingRead = reading;
      this.#show();
      // Curves that were asked for meanwhile may lack points, too.
      if (read.length) this.#charts.refresh(new Set(read));
      if (reading.size) this.#again = window.setTimeout(() => void this.#ask(true), AGAIN_MS);
      // Which tags there are decides which values are wanted.
      void this.#ask(false);
      return true;
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      this.#asked = "";
      if (error.kind === "starting") this.#again = window.setTimeout(() => void this.#ask(true), AGAIN_MS);
      return false;
    }
  }

  /** The tags whose values are asked for: those that are drawn, and those that are columns. */
  #wantedTags(): string[] {
    const columns = (this.state.columns ?? []).flatMap((key) => (key.startsWith("tag:") ? [key.slice(4)] : []));
    return [...new Set([...this.#chosenTags(), ...columns])].slice(0, MOST_TAGS);
  }

  #chosenTags(): string[] {
    return this.state.tags ?? defaultTags(this.#allTags());
  }

  /** All tags of all runs; of each, how many runs have it. */
  #allTags(): Tag[] {
    const counts = new Map<string, number>();
    for (const { tags } of this.#answer?.runs ?? [])
      for (const tag of tags ?? []) counts.set(tag, (counts.get(tag) ?? 0) + 1);
    const about = { first_step: null, last_step: null, last_value: null };
    return [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([tag, points]) => ({ tag, points, ...about }));
  }

  #show(): void {
    const answer = this.#answer,
      { state } = this;
    if (!answer || !state.chosen.length) return;
    if (this.#body.parentNode !== this.element) fill(this.element, this.#body);
    setAttribute(this.element, "aria-busy", null);
    const known = new Map(answer.runs.map((run) => [run.run, run]));
    const chosenTags = this.#chosenTags();
    const have = (tag: string): Chosen[] => state.chosen.filter(({ run }) => known.get(run)?.tags?.includes(tag));
    const unread = state.chosen.filter(({ run }) => known.get(run)?.tags == null && !known.get(run)?.problem).length;
    this.#picker.update(this.#allTags(), chosenTags, state);
    this.#charts.show(state, chosenTags, have, unread);
    this.#legend.update(state.chosen, state.baseline, chosenTags);
    this.#table.update(state, answer, this.#hovered);
    this.#axes.show(this.#charts.kind);
    this.#wholeButton.disabled = state.zoom === null;
    const problems = answer.runs.flatMap(({ run, problem }) => (problem === null ? [] : [`${run}: ${problem}`]));
    fill(this.#problems, ...problems.map((text) => h("li", {}, text)));
    this.#problems.hidden = problems.length === 0;
    this.#read();
  }

  /** List the values at the cursor, once in a frame. */
  #read(): void {
    this.#reading ||= requestAnimationFrame(() => {
      this.#reading = 0;
      const { tag, kind } = this.#charts;
      if (tag === null) return;
      const { x, of } = this.#charts.readings(tag);
      this.#legend.read(tag, x === null ? null : PLACES[kind](x), of, this.state.baseline);
    });
  }

  #hover(run: string | null): void {
    if (run === this.#hovered) return;
    this.#hovered = run;
    this.#charts.highlight(run);
    this.#legend.highlight(run);
    this.#table.highlight(run);
  }

  #remove(run: string): void {
    const { baseline, chosen } = this.state;
    this.#hover(null);
    this.change({ chosen: withoutRuns(chosen, [run]), baseline: baseline === run ? null : baseline }, true);
  }

  /** A stretch means something on its own axis only. */
  #setAxis(axis: AxisKind): void {
    if (axis !== this.#charts.kind) this.change({ axis, zoom: null }, true);
  }

  tick(_now: number): void {}

  restyle(): void {
    this.#charts.restyle();
  }

  print(printing: boolean): void {
    this.#charts.print(printing);
  }

  focusSearch(): void {
    this.#picker.focus();
  }

  escape(): boolean {
    return this.#picker.escape() || this.#charts.whole();
  }

  close(): void {
    window.clearTimeout(this.#again);
    cancelAnimationFrame(this.#reading);
    this.#latest.cancel();
    this.#table.close();
    this.#charts.close();
  }
}

function nothingChosen(): HTMLElement {
  return h(
    "section",
    { class: "empty" },
    h("h2", {}, "No runs are chosen"),
    h("p", {}, "Go back to the list, choose runs by their checkboxes, and press Compare."),
  );
}
