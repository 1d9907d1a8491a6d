/** One line of the overview: made once, shown for one run after the other. */
import { elementColour } from "../logic/colours";
import {
  formatAgo,
  formatCount,
  formatMoment,
  formatRate,
  formatShare,
  itsNow,
  plural,
  roughDuration,
  UNKNOWN,
} from "../logic/format";
import { labelWords } from "../logic/placement";
import { sparkline } from "../logic/sparkline";
import { RUN_STATES, wordOf } from "../logic/words";
import type { RunLine } from "../types/api";
import { h, setAttribute, setText, svg } from "./element";
import { RowFinding } from "./row_finding";

const SPARK = { width: 72, height: 18 };

export class RunRow {
  readonly element: HTMLElement;
  /** As `hide`: for the mouse. */
  readonly #check = h("input", { type: "checkbox", tabindex: -1 });
  readonly #glyph = h("span", { class: "glyph", "aria-hidden": "true" });
  readonly #word = h("span");
  readonly #pill = h("span", { class: "pill" }, this.#glyph, this.#word);
  readonly #name = h("span", { class: "run-name" });
  readonly #labels = h("span", { class: "labels muted" });
  readonly #step = cell("num step");
  readonly #rate = h("span", { class: "num" });
  readonly #spark = svg("path", { class: "spark" });
  readonly #age = h("span");
  readonly #ageBar = h("span", { class: "age-fill" });
  readonly #bar = h("span", { class: "age-bar", "aria-hidden": "true" }, this.#ageBar);
  readonly #checkpoint = cell("checkpoint", this.#age, this.#bar);
  readonly #restarts = cell("num restarts");
  readonly #goodput = cell("num goodput");
  readonly #seen = cell("num seen");
  /** Cells of chosen columns. */
  readonly #further: HTMLElement[] = [];
  readonly #finding = new RowFinding();
  /** For the mouse; the keyboard has a key of its own, as the list is one stop for Tab. */
  readonly #hide = h("button", { class: "hide-button", tabindex: -1 });

  constructor(
    open: (name: string) => void,
    choose: (name: string, ranging: boolean) => void,
    hide: (name: string) => void,
  ) {
    const choice = cell("choice", h("label", { class: "check" }, this.#check));
    // The list keeps the focus, and Shift selects no text.
    choice.addEventListener("mousedown", (event) => event.preventDefault());
    choice.addEventListener("click", (event) => {
      event.stopPropagation();
      if (event.target === this.#check) choose(this.run, event.shiftKey);
    });
    this.#hide.addEventListener("click", (event) => {
      event.stopPropagation();
      hide(this.run);
    });
    const drawing = svg("svg", {
      viewBox: `0 0 ${SPARK.width} ${SPARK.height}`,
      class: "spark-box",
      "aria-hidden": "true",
    });
    drawing.append(this.#spark);
    this.element = h(
      "div",
      { class: "row", role: "row", onclick: () => open(this.run) },
      choice,
      cell("state", this.#pill),
      cell("name", this.#name, this.#labels),
      this.#step,
      cell("rate", drawing as unknown as HTMLElement, this.#rate),
      this.#checkpoint,
      this.#restarts,
      this.#goodput,
      this.#seen,
      cell("hide", this.#hide),
      this.#finding.element,
    );
  }

  run = "";

  copyCommand(): void {
    this.#finding.copyCommand();
  }

  /** `colour`: in which it is compared; null where it is not chosen. `further`: what stands in chosen columns. */
  show(
    line: RunLine,
    title: string,
    index: number,
    active: boolean,
    hidden: boolean,
    colour: number | null,
    further: readonly string[],
    now: number,
  ): void {
    this.run = line.run;
    const chosen = colour !== null;
    this.#check.checked = chosen;
    this.#check.style.accentColor = chosen ? elementColour(colour) : "";
    setAttribute(this.#check, "aria-label", `Choose ${title}`);
    setAttribute(this.element, "aria-selected", String(chosen));
    this.#finding.show(line, now);
    this.element.classList.toggle("hidden-run", hidden);
    setText(this.#hide, hidden ? "Show" : "Hide");
    setAttribute(this.#hide, "aria-label", `${hidden ? "Show" : "Hide"} ${title}`);
    setAttribute(
      this.#hide,
      "title",
      hidden ? "List it again (h)" : "Hide it until its state changes or it is started again (h)",
    );
    const word = wordOf(RUN_STATES, line.state);
    this.element.id = `run-${index}`;
    setAttribute(this.element, "aria-rowindex", String(index + 2));
    this.element.classList.toggle("active", active);
    this.#pill.className = `pill ${word.tone}`;
    setText(this.#glyph, word.glyph);
    setText(this.#word, word.label);
    setAttribute(this.#pill, "title", stateNote(line, word.meaning));
    setText(this.#name, title);
    const labels = labelWords(line.labels);
    setAttribute(this.#name, "title", [title, ...labels].join("\n"));
    setText(this.#labels, labels.join(" "));
    setText(this.#step, formatCount(line.step));
    setText(this.#rate, formatRate(line.steps_per_sec));
    setAttribute(this.#spark, "d", sparkline(line.rates, SPARK.width, SPARK.height));
    this.#showCheckpoint(line, itsNow(line, now));
    const within = line.recoveries ? ` ↺ ${formatCount(line.recoveries)}` : "";
    setText(this.#restarts, line.restarts || within ? `↻ ${formatCount(line.restarts)}${within}` : "0");
    setAttribute(
      this.#restarts,
      "title",
      within ? `${plural(line.restarts, "restart")}, and ${formatCount(line.recoveries)} within a session` : null,
    );
    this.#restarts.classList.toggle("muted", line.restarts === 0 && !within);
    setText(this.#goodput, formatShare(line.goodput));
    while (this.#further.length > further.length) this.#further.pop()?.remove();
    while (this.#further.length < further.length) {
      const added = cell("num further");
      this.#further.push(added);
      this.#step.before(added);
    }
    this.#further.forEach((each, i) => {
      setText(each, further[i] ?? "");
      setAttribute(each, "title", further[i] ?? null);
    });
    setText(this.#seen, formatAgo(line.last_event, itsNow(line, now)));
    setAttribute(this.#seen, "title", formatMoment(line.last_event));
  }

  #showCheckpoint(line: RunLine, now: number): void {
    const { checkpoint_at: at, checkpoint_interval_secs: every } = line;
    const age = at == null ? null : Math.max(0, now - at);
    const open = line.state === "running" || line.state === "stalled";
    const interval = open && every != null ? ` / ${roughDuration(every)}` : "";
    setText(this.#age, age == null ? (line.inferred ? UNKNOWN : "none") : roughDuration(age) + interval);
    this.#checkpoint.classList.toggle("muted", age == null);
    const share = open && every && age != null ? Math.min(1, age / every) : 0;
    setAttribute(this.#bar, "class", open && every ? "age-bar" : "age-bar none");
    this.#ageBar.style.width = `${(share * 100).toFixed(0)}%`;
    const newest =
      at == null
        ? line.inferred
          ? "No checkpoint is recorded."
          : "No good checkpoint."
        : `Step ${formatCount(line.checkpoint_step)}, ${formatMoment(at)}.`;
    setAttribute(this.#checkpoint, "title", newest);
  }
}

function stateNote(line: RunLine, meaning: string): string {
  const notes = [meaning];
  if (line.phase) notes.push(`Phase: ${line.phase}.`);
  if (line.inferred) notes.push("Inferred: its writer does not record it.");
  return notes.join(" ");
}

function cell(name: string, ...children: HTMLElement[]): HTMLElement {
  return h("div", { class: `cell ${name}`, role: "gridcell" }, ...children);
}
