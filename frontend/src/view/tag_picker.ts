/** Which tags are drawn, and how: a list with a filter, smoothing, logarithm. */
import { formatCount } from "../logic/format";
import type { UrlState } from "../logic/url_state";
import { report } from "../net/report";
import type { Tag } from "../types/api";
import { CheckList } from "./check_list";
import { h, setText } from "./element";

export class TagPicker {
  readonly #list = new CheckList("tag", (tag, on) => this.#toggle(tag, on));
  readonly #slider = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, "aria-label": "Smoothing" });
  readonly #amount = h("output", { class: "num" });
  readonly #log = h("input", { type: "checkbox" });
  readonly #smoothing = h("label", { class: "control" }, "Smoothing", this.#slider, this.#amount);
  readonly element = h(
    "div",
    { class: "toolbar scalars-bar" },
    h("h2", {}, "Scalars"),
    this.#list.element,
    this.#smoothing,
    h("label", { class: "control" }, this.#log, "Logarithmic"),
  );
  #tags: Tag[] = [];
  #chosen: string[] = [];

  /** `count`: what is said of a tag beside its name. */
  constructor(
    private readonly change: (patch: Partial<UrlState>, replace: boolean) => void,
    private readonly count: (tag: Tag) => string = ({ points }) => formatCount(points),
  ) {
    this.#slider.addEventListener("input", () => this.change({ smoothing: Number(this.#slider.value) }, true));
    this.#log.addEventListener("change", () => this.change({ log: this.#log.checked }, true));
  }

  update(tags: Tag[], chosen: string[], state: UrlState): void {
    const changed = tags.length !== this.#tags.length || chosen.join("\n") !== this.#chosen.join("\n");
    this.#tags = tags;
    this.#chosen = chosen;
    setText(this.#list.summary, `Tags: ${formatCount(chosen.length)} of ${formatCount(tags.length)}`);
    if (document.activeElement !== this.#slider) this.#slider.value = String(state.smoothing);
    setText(this.#amount, state.smoothing.toFixed(2));
    this.#log.checked = state.log;
    this.element.hidden = tags.length === 0;
    const whole = report?.whole_points ?? Infinity;
    this.#smoothing.hidden = tags.every(({ points }) => points > whole);
    if (!changed) return;
    this.#list.update(
      tags.map((tag) => ({ key: tag.tag, name: tag.tag, note: this.count(tag) })),
      new Set(chosen),
    );
  }

  focus(): void {
    this.#list.focus();
  }

  /** Close the list; whether it was open. */
  escape(): boolean {
    return this.#list.close();
  }

  #toggle(tag: string, on: boolean): void {
    const rest = this.#chosen.filter((name) => name !== tag);
    this.change({ tags: on ? [...rest, tag] : rest }, true);
  }
}
