/** The facts: how the run is, what happened, where its time went, and a better interval where there is one. */
import { formatCount, itsNow } from "../logic/format";
import { headline } from "../logic/headline";
import { RUN_STATES, wordOf } from "../logic/words";
import type { RunDetail, WorkerHistory } from "../types/api";
import { h, pill, refresh } from "./element";
import { GoodputBar } from "./goodput_bar";

export class Summary {
  readonly #sentences = h("ul", { class: "sentences", "aria-label": "What happened" });
  readonly #goodput = new GoodputBar();
  readonly #advice = h("section", { class: "advice card", "aria-label": "Checkpoint interval", hidden: true });
  readonly element = h("div", { class: "summary" }, this.#sentences, this.#goodput.element, this.#advice);
  #detail: RunDetail | null = null;
  #workers: readonly WorkerHistory[] = [];

  update(detail: RunDetail, workers: readonly WorkerHistory[], now: number): void {
    this.#detail = detail;
    this.#workers = workers;
    this.#goodput.update(detail.goodput);
    const better = detail.proposed_interval;
    this.#advice.hidden = better === null;
    if (better) refresh(this.#advice, h("h2", {}, sign("→ ", "glyph"), better.what), h("p", {}, better.why));
    this.tick(now);
  }

  /** Ages grow without news. */
  tick(now: number): void {
    const detail = this.#detail;
    if (!detail) return;
    const state = wordOf(RUN_STATES, detail.state);
    const said = headline(detail, this.#workers, itsNow(detail, now));
    const key = JSON.stringify([detail.state, said]);
    if (this.#sentences.dataset.key === key) return;
    this.#sentences.dataset.key = key;
    const damaged = detail.corrupt_records;
    refresh(
      this.#sentences,
      ...said.map(({ sign: glyph, lead, rest }, i) =>
        h(
          "li",
          {},
          i === 0 ? pill(state) : sign(glyph, "sign"),
          h("span", {}, h("strong", {}, lead), rest ? `: ${rest}` : ""),
        ),
      ),
      damaged > 0 &&
        h("li", {}, sign("·", "sign"), h("span", {}, `${formatCount(damaged)} damaged records were passed over`)),
    );
  }
}

const sign = (glyph: string, name: string): HTMLElement => h("span", { class: name, "aria-hidden": "true" }, glyph);
