/** What happened in a stretch of time, as sentences that can be copied for who takes over. */
import { formatCount, formatMoment, zoneOf } from "../logic/format";
import type { View } from "../logic/view";
import type { Happening, IncidentsAnswer } from "../types/timeline";
import { copyButton } from "./copy";
import { fill, h, setText } from "./element";

export class Happenings {
  readonly #heading = h("h2", {});
  readonly #list = h("ul");
  readonly #note = h("p", { class: "muted" });
  readonly #clearButton = h("button", { onclick: () => this.clear() }, "Whole period");
  readonly element: HTMLElement;
  #shown: { answer: IncidentsAnswer; view: View; title: string } | null = null;
  #key = "";

  /** `show`: bring a moment, and a run, into sight. `clear`: say again what happened in the whole period. */
  constructor(
    private readonly show: (happening: Happening) => unknown,
    private readonly clear: () => void,
  ) {
    const copy = copyButton(() => this.#text(), { "aria-label": "Copy these sentences" });
    this.element = h(
      "section",
      { class: "happenings", "aria-label": "What happened" },
      h("div", { class: "toolbar" }, this.#heading, this.#clearButton, copy),
      h(
        "div",
        { class: "happenings-box", tabindex: 0, role: "group", "aria-label": "Sentences" },
        this.#list,
        this.#note,
      ),
    );
  }

  /** `period`: what the stretch is called; null where it is a part of it. */
  update(answer: IncidentsAnswer, view: View, period: string | null): void {
    const title = `What happened ${period ? `in ${period}` : `from ${formatMoment(view.lo)} to ${formatMoment(view.hi)}`}`;
    this.#shown = { answer, view, title };
    setText(this.#heading, title);
    this.#clearButton.hidden = period !== null;
    const key = JSON.stringify([answer.sentences, period]);
    if (key === this.#key) return;
    this.#key = key;
    fill(
      this.#list,
      ...answer.sentences.map((each) =>
        h(
          "li",
          { class: each.together && "together" },
          h(
            "button",
            { class: "plain when", title: "Show this moment", onclick: () => this.show(each) },
            formatMoment(each.at).slice(5, 16),
          ),
          h("span", {}, each.text),
        ),
      ),
    );
    const more = answer.total - answer.sentences.length;
    const none = answer.sentences.length ? "" : "Nothing happened.";
    setText(this.#note, more > 0 ? `${formatCount(more)} more: choose a shorter stretch.` : none);
  }

  #text(): string {
    if (!this.#shown) return "";
    const { answer, view, title } = this.#shown;
    const zone = zoneOf(view.hi);
    const lines = answer.sentences.map(({ at, text }) => `${formatMoment(at)} ${text}`);
    return [`${title} (times: ${zone})`, ...lines, this.#note.textContent ?? ""].filter(Boolean).join("\n");
  }
}
