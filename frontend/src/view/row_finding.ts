/** What is wrong with a run, below its line in the list: the sentence, what to do, and where to read on. */
import { NOT_JUDGED, runbookOf, SEVERITIES, sinceWords } from "../logic/findings";
import { formatMoment } from "../logic/format";
import { printable } from "../logic/printable";
import type { Word } from "../logic/words";
import { wordOf } from "../logic/words";
import { linesOf } from "../logic/wrap";
import type { RunLine } from "../types/api";
import { copyButton, copyFrom } from "./copy";
import { h, remPx, setAttribute, setText } from "./element";

const UNKNOWN: Word = { glyph: "?", label: "unknown", tone: "dim", meaning: NOT_JUDGED, rank: 9 };

/** In rem, as the style sheet has them. */
const [LINE, DO_LINE, SIGN, LINKS, BELOW] = [1.1875, 1.75, 1.5, 13, 0.375];

/** What is said, without ages; null where nothing is. */
function saidOf({ finding, more_findings: more }: RunLine): string | null {
  if (finding === null) return more === null ? NOT_JUDGED : null;
  return `${finding.sentence}${more ? ` (And ${more} more.)` : ""}`;
}

/** Only what needs somebody says what to do: the rest is on the run's page. */
const needsAction = ({ standing, finding }: RunLine): boolean => standing === "needs_you" && finding !== null;

export class RowFinding {
  readonly #sign = h("span", { class: "sign", role: "img" });
  readonly #text = h("span", { class: "text" });
  readonly #since = h("span", { class: "since muted" });
  readonly #command = h("code", {});
  readonly #action = h("span", { class: "action" });
  readonly #copy = copyButton(() => this.#line?.finding?.action ?? "", {
    tabindex: -1,
    title: "Copy the command (c)",
  });
  readonly #runbook = h("a", { target: "_blank", rel: "noopener", tabindex: -1 }, "Runbook");
  readonly #stacks = h("button", { class: "link", tabindex: -1 }, "Stacks");
  readonly #todo = h(
    "p",
    { class: "do" },
    this.#command,
    this.#action,
    h("span", { class: "links" }, this.#copy, this.#runbook, this.#stacks),
  );
  readonly element = h(
    "div",
    { class: "cell finding", role: "gridcell" },
    this.#sign,
    h("div", {}, h("p", { class: "said" }, this.#text, this.#since), this.#todo),
  );
  #line: RunLine | null = null;

  constructor() {
    this.#runbook.addEventListener("click", (event) => event.stopPropagation());
  }

  show(line: RunLine, now: number): void {
    this.#line = line;
    const { finding } = line;
    const said = saidOf(line);
    this.element.hidden = said === null;
    if (said === null) return;
    const word = finding ? wordOf(SEVERITIES, finding.severity) : UNKNOWN;
    this.element.className = `cell finding ${word.tone}`;
    setText(this.#sign, word.glyph);
    setAttribute(this.#sign, "aria-label", word.label);
    setAttribute(this.#sign, "title", word.meaning);
    setText(this.#text, said);
    setText(this.#since, finding ? ` ${sinceWords(finding, now)}` : "");
    setAttribute(this.#since, "title", finding?.since == null ? null : formatMoment(finding.since));
    this.#todo.hidden = !needsAction(line);
    if (!finding || this.#todo.hidden) return;
    const runbook = runbookOf(finding);
    this.#command.hidden = this.#copy.hidden = !(finding.is_command && finding.action !== null);
    this.#action.hidden = finding.is_command || finding.action === null;
    setText(this.#command, finding.action ?? "");
    setText(this.#action, `→ ${finding.action ?? ""}`);
    this.#runbook.hidden = runbook === null;
    setAttribute(this.#runbook, "href", runbook);
    this.#stacks.hidden = !(finding.kind === "stalled" && line.stalled_since !== null);
  }

  /** For the keyboard: the list is one stop for Tab. */
  copyCommand(): void {
    if (!this.element.hidden && !this.#todo.hidden && !this.#copy.hidden)
      void copyFrom(this.#copy, this.#line?.finding?.action ?? "");
  }
}

/** Measures what is not in the page. Fonts are those of the page, which does not load any. */
export class FindingRuler {
  readonly #context = document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;
  readonly #words = new Map<string, number>();
  #fonts = "";

  /** The height that a run's finding takes, in pixels; 0 where it has none. */
  heightOf(line: RunLine, width: number, now: number, like: HTMLElement): number {
    const said = saidOf(line);
    if (said === null) return 0;
    const rem = remPx();
    const room = width - SIGN * rem;
    const family = getComputedStyle(like).fontFamily;
    const since = line.finding ? sinceWords(line.finding, now) : "";
    let lines = this.#lines(`${said} ${since}`, room, `${0.8125 * rem}px ${family}`);
    let height = lines * LINE;
    if (needsAction(line) && line.finding) {
      const { action, is_command: isCommand } = line.finding;
      height += DO_LINE;
      if (action !== null) {
        const font = isCommand ? `${0.75 * rem}px ${MONO}` : `${0.8125 * rem}px ${family}`;
        const text = isCommand ? action : `→ ${action}`;
        lines = this.#lines(text, room, font);
        // The links have a line of their own where they do not fit beside it.
        if (lines > 1 || this.#widthOf(text, font) > room - LINKS * rem) height += lines * LINE;
      }
    }
    return Math.ceil((height + BELOW) * rem);
  }

  #lines(text: string, width: number, font: string): number {
    return linesOf(printable(text), width, (word) => this.#widthOf(word, font));
  }

  #widthOf(word: string, font: string): number {
    if (this.#fonts !== font) this.#context.font = this.#fonts = font;
    const key = `${font} ${word}`;
    const known = this.#words.get(key);
    if (known !== undefined) return known;
    if (this.#words.size > MOST_WORDS) this.#words.clear();
    const { width } = this.#context.measureText(word);
    this.#words.set(key, width);
    return width;
  }
}

const MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const MOST_WORDS = 20_000;
