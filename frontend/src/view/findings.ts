/** What is to be said of a run, worst first, each with what to do: the first thing on its page. */
import { NOT_JUDGED, runbookOf, SEVERITIES, sinceWords } from "../logic/findings";
import { formatMoment } from "../logic/format";
import { wordOf } from "../logic/words";
import { report } from "../net/report";
import type { Finding } from "../types/api";
import { copyButton } from "./copy";
import { fill, h, setText } from "./element";

export class FindingList {
  readonly #list = h("ul", { class: "findings" });
  readonly element = h("section", { "aria-label": "Findings", hidden: true }, this.#list);
  #shown = "";
  #ages: [HTMLElement, Finding][] = [];

  /** Null: they could not be had. */
  update(findings: readonly Finding[] | null, now: number): void {
    const key = JSON.stringify(findings);
    if (key !== this.#shown) {
      this.#shown = key;
      this.#ages = [];
      const items = findings?.map((finding) => this.#item(finding));
      fill(this.#list, ...(items ?? [h("li", { class: "card finding dim" }, h("p", {}, NOT_JUDGED))]));
      this.element.hidden = findings?.length === 0;
    }
    this.tick(now);
  }

  tick(now: number): void {
    for (const [element, finding] of this.#ages) setText(element, ` ${sinceWords(finding, now)}`);
  }

  #item(finding: Finding): HTMLElement {
    const word = wordOf(SEVERITIES, finding.severity);
    const age = h("span", { class: "since muted", title: finding.since === null ? null : formatMoment(finding.since) });
    this.#ages.push([age, finding]);
    const { action } = finding;
    const href = runbookOf(finding);
    return h(
      "li",
      { class: `card finding ${word.tone}`, "data-kind": finding.kind },
      h("span", { class: "sign", role: "img", "aria-label": word.label, title: word.meaning }, word.glyph),
      h(
        "div",
        {},
        h("p", { class: "said" }, h("strong", {}, finding.text), finding.cost ? ` ${finding.cost}` : "", age),
        h(
          "p",
          { class: "do" },
          action !== null && finding.is_command && h("code", {}, action),
          action !== null && finding.is_command && copyButton(() => action),
          action !== null && !finding.is_command && h("span", {}, `→ ${action}`),
          // A report comes without the runbook.
          report === null && href !== null && h("a", { href, target: "_blank", rel: "noopener" }, "Runbook"),
        ),
      ),
    );
  }
}
