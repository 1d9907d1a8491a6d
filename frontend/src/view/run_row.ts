/** One line of the overview: made once, shown for one run after the other. */
import { formatAgo, formatCount, formatMoment, formatRate, formatShare, plural, roughDuration } from "../logic/format";
import { sparkline } from "../logic/sparkline";
import { RUN_STATES, wordOf } from "../logic/words";
import type { RunLine } from "../types/api";
import { h, setAttribute, setText, svg } from "./element";

const SPARK = { width: 72, height: 18 };

/** Where a checkpoint's age is late: measured in intervals. */
const LATE = 1.5;

export class RunRow {
  readonly element: HTMLElement;
  private readonly glyph = h("span", { class: "glyph", "aria-hidden": "true" });
  private readonly word = h("span");
  private readonly pill = h("span", { class: "pill" }, this.glyph, this.word);
  private readonly name = h("span", { class: "run-name" });
  private readonly cluster = h("span", { class: "cluster" });
  private readonly step = cell("num step");
  private readonly rate = h("span", { class: "num" });
  private readonly spark = svg("path", { class: "spark" });
  private readonly age = h("span");
  private readonly ageBar = h("span", { class: "age-fill" });
  private readonly bar = h("span", { class: "age-bar", "aria-hidden": "true" }, this.ageBar);
  private readonly checkpoint = cell("checkpoint", this.age, this.bar);
  private readonly restarts = cell("num restarts");
  private readonly goodput = cell("num goodput");
  private readonly seen = cell("num seen");
  /** For the mouse; the keyboard has a key of its own, as the list is one stop for Tab. */
  private readonly hide = h("button", { type: "button", class: "hide-button", tabindex: -1 });

  constructor(open: (name: string) => void, hide: (name: string) => void) {
    this.hide.addEventListener("click", (event) => {
      event.stopPropagation();
      hide(this.run);
    });
    const drawing = svg("svg", {
      viewBox: `0 0 ${SPARK.width} ${SPARK.height}`,
      class: "spark-box",
      "aria-hidden": "true",
    });
    drawing.append(this.spark);
    this.element = h(
      "div",
      { class: "row", role: "row", onclick: () => open(this.run) },
      cell("state", this.pill),
      cell("name", this.name, this.cluster),
      this.step,
      cell("rate", drawing as unknown as HTMLElement, this.rate),
      this.checkpoint,
      this.restarts,
      this.goodput,
      this.seen,
      cell("hide", this.hide),
    );
  }

  run = "";

  show(line: RunLine, title: string, index: number, active: boolean, hidden: boolean, now: number): void {
    this.run = line.run;
    this.element.classList.toggle("hidden-run", hidden);
    setText(this.hide, hidden ? "Show" : "Hide");
    setAttribute(this.hide, "aria-label", `${hidden ? "Show" : "Hide"} ${title}`);
    setAttribute(
      this.hide,
      "title",
      hidden ? "List it again (h)" : "Hide it until its state changes or it is started again (h)",
    );
    const word = wordOf(RUN_STATES, line.state);
    this.element.id = `run-${index}`;
    setAttribute(this.element, "aria-rowindex", String(index + 2));
    setAttribute(this.element, "aria-selected", String(active));
    this.element.classList.toggle("active", active);
    this.pill.className = `pill ${word.tone}`;
    setText(this.glyph, word.glyph);
    setText(this.word, word.label);
    setAttribute(this.pill, "title", stateNote(line, word.meaning));
    setText(this.name, line.problem ? `⚠ ${title}` : title);
    setAttribute(this.name, "title", line.problem ? `${title}: ${line.problem}` : title);
    setText(this.step, formatCount(line.step));
    setText(this.rate, formatRate(line.steps_per_sec));
    setAttribute(this.spark, "d", sparkline(line.rates, SPARK.width, SPARK.height));
    this.showCheckpoint(line, now);
    this.showCluster(line);
    const within = line.recoveries ? ` ↺ ${formatCount(line.recoveries)}` : "";
    setText(this.restarts, line.restarts || within ? `↻ ${formatCount(line.restarts)}${within}` : "0");
    setAttribute(
      this.restarts,
      "title",
      within ? `${plural(line.restarts, "restart")}, and ${formatCount(line.recoveries)} within a session` : null,
    );
    this.restarts.classList.toggle("quiet", line.restarts === 0 && !within);
    setText(this.goodput, formatShare(line.goodput));
    setText(this.seen, formatAgo(line.last_event, now));
    setAttribute(this.seen, "title", formatMoment(line.last_event));
  }

  private showCluster(line: RunLine): void {
    const sick = line.sick_workers;
    setText(this.cluster, sick ? `! ${formatCount(sick)} of ${plural(line.workers, "worker")}` : "");
    setAttribute(this.cluster, "title", sick ? "Lost, failed or stalled" : null);
  }

  private showCheckpoint(line: RunLine, now: number): void {
    const { checkpoint_at: at, checkpoint_interval_secs: every } = line;
    const age = at == null ? null : Math.max(0, now - at);
    const open = line.state === "running" || line.state === "stalled";
    const late = open && every != null && age != null && age > LATE * every;
    const sign = line.checkpoints_failing ? "✕ " : late ? "! " : "";
    const interval = open && every != null ? ` / ${roughDuration(every)}` : "";
    setText(this.age, age == null ? `${sign}none` : sign + roughDuration(age) + interval);
    this.checkpoint.classList.toggle("quiet", age == null);
    this.checkpoint.classList.toggle("warn-text", late && !line.checkpoints_failing);
    this.checkpoint.classList.toggle("bad-text", line.checkpoints_failing);
    const share = open && every && age != null ? Math.min(1, age / every) : 0;
    setAttribute(this.bar, "class", open && every ? "age-bar" : "age-bar none");
    this.ageBar.style.width = `${(share * 100).toFixed(0)}%`;
    const failing = line.checkpoints_failing ? "Saves are failing. " : late ? "The next save is late. " : "";
    const newest =
      at == null ? "No good checkpoint." : `Newest: step ${formatCount(line.checkpoint_step)}, ${formatMoment(at)}.`;
    const risk = line.at_risk_steps ? ` ${plural(line.at_risk_steps, "step")} at risk: in no checkpoint.` : "";
    setAttribute(this.checkpoint, "title", failing + newest + risk);
  }
}

function stateNote(line: RunLine, meaning: string): string {
  const notes = [meaning];
  if (line.phase) notes.push(`Phase: ${line.phase}.`);
  if (line.sick_threads) notes.push(`${line.sick_threads} service threads overdue or failing.`);
  if (line.inferred) notes.push("Inferred: the run's writer does not record it.");
  return notes.join(" ");
}

function cell(name: string, ...children: HTMLElement[]): HTMLElement {
  return h("div", { class: `cell ${name}`, role: "gridcell" }, ...children);
}
