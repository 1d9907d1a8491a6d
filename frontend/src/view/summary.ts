/** The first thing to read: what happened, what it cost, what to do about it. */
import { adviceWords } from "../logic/advice";
import { formatCount } from "../logic/format";
import { headline } from "../logic/headline";
import { RUN_STATES, wordOf } from "../logic/words";
import type { RunDetail, WorkerHistory } from "../types/api";
import { h, pill, refresh } from "./element";
import { GoodputBar } from "./goodput_bar";

const SIGNS: Record<string, string> = { good: "✓", live: "▶", calm: "◆", warn: "!", bad: "✕", dim: "·" };

export class Summary {
  private readonly sentences = h("ul", { class: "sentences", "aria-label": "What happened" });
  private readonly goodput = new GoodputBar();
  private readonly advice = h("section", { class: "advice card", "aria-label": "Checkpoint interval", hidden: true });
  readonly element = h("div", { class: "summary" }, this.sentences, this.goodput.element, this.advice);
  private detail: RunDetail | null = null;
  private workers: readonly WorkerHistory[] = [];

  update(detail: RunDetail, workers: readonly WorkerHistory[], now: number): void {
    this.detail = detail;
    this.workers = workers;
    this.goodput.update(detail.goodput);
    const words = adviceWords(detail.advice, detail.goodput.wall_secs);
    this.advice.hidden = words === null;
    if (words) {
      refresh(
        this.advice,
        h(
          "h2",
          {},
          h("span", { class: "glyph", "aria-hidden": "true" }, words.change ? "→ " : words.known ? "✓ " : "· "),
          words.title,
        ),
        h("p", {}, words.detail),
      );
    }
    this.tick(now);
  }

  /** Ages grow without news. */
  tick(now: number): void {
    const { detail } = this;
    if (!detail) return;
    const state = wordOf(RUN_STATES, detail.state);
    const said = headline(detail, this.workers, now);
    const key = JSON.stringify(said);
    if (this.sentences.dataset.key === key) return;
    this.sentences.dataset.key = key;
    refresh(
      this.sentences,
      ...said.map((sentence, i) =>
        h(
          "li",
          { class: sentence.tone },
          i === 0
            ? pill(state)
            : h("span", { class: "sign", "aria-hidden": "true" }, sentence.sign ?? SIGNS[sentence.tone] ?? "·"),
          h("span", {}, h("strong", {}, sentence.lead), sentence.rest ? `: ${sentence.rest}` : ""),
        ),
      ),
      detail.corrupt_records > 0
        ? h(
            "li",
            { class: "warn" },
            h("span", { class: "sign", "aria-hidden": "true" }, "!"),
            `${formatCount(detail.corrupt_records)} damaged records were passed over`,
          )
        : null,
    );
  }
}
