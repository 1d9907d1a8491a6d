/** Which tags are drawn, and how: a list with a filter, smoothing, logarithm. */
import { NameFilter } from "../logic/filter";
import { formatCount, plural } from "../logic/format";
import type { UrlState } from "../logic/url_state";
import { match } from "../net/matching";
import { report } from "../net/report";
import type { Tag } from "../types/api";
import { fill, h, setText } from "./element";

/** More than this are not listed: the filter finds the rest. */
const MOST = 300;

export class TagPicker {
  private readonly summary = h("summary", {});
  private readonly search = h("input", {
    type: "search",
    class: "search",
    placeholder: "Filter tags (regular expression)",
    "aria-label": "Filter tags by a regular expression",
    spellcheck: "false",
    autocomplete: "off",
  });
  private readonly list = h("div", { class: "tag-list", role: "group", "aria-label": "Tags" });
  private readonly note = h("p", { class: "muted", role: "status" });
  private readonly details = h("details", { class: "tags" }, this.summary, this.search, this.list, this.note);
  private readonly slider = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, "aria-label": "Smoothing" });
  private readonly amount = h("output", { class: "num" });
  private readonly log = h("input", { type: "checkbox" });
  private readonly smoothing = h("label", { class: "control" }, "Smoothing", this.slider, this.amount);
  readonly element = h(
    "div",
    { class: "toolbar scalars-bar" },
    h("h2", {}, "Scalars"),
    this.details,
    this.smoothing,
    h("label", { class: "control" }, this.log, "Logarithmic"),
  );
  private readonly filter = new NameFilter(match, () => this.showList());
  private tags: Tag[] = [];
  private chosen: string[] = [];

  constructor(private readonly change: (patch: Partial<UrlState>, replace: boolean) => void) {
    this.search.addEventListener("input", () => this.showList());
    this.slider.addEventListener("input", () => this.change({ smoothing: Number(this.slider.value) }, true));
    this.log.addEventListener("change", () => this.change({ log: this.log.checked }, true));
    this.details.addEventListener("toggle", () => this.showList());
  }

  update(tags: Tag[], chosen: string[], state: UrlState): void {
    const changed = tags.length !== this.tags.length || chosen.join("\n") !== this.chosen.join("\n");
    this.tags = tags;
    this.chosen = chosen;
    setText(this.summary, `Tags: ${formatCount(chosen.length)} of ${formatCount(tags.length)}`);
    if (document.activeElement !== this.slider) this.slider.value = String(state.smoothing);
    setText(this.amount, state.smoothing.toFixed(2));
    this.log.checked = state.log;
    this.element.hidden = tags.length === 0;
    const whole = report?.whole_points ?? Infinity;
    this.smoothing.hidden = tags.every(({ points }) => points > whole);
    if (changed) this.showList();
  }

  focus(): void {
    this.details.open = true;
    this.search.focus();
  }

  /** Close the list; whether it was open. */
  escape(): boolean {
    const { open } = this.details;
    this.details.open = false;
    return open;
  }

  private showList(): void {
    if (!this.details.open) return;
    const found = this.filter.select(this.search.value, this.tags, (tag) => tag.tag);
    const focused = document.activeElement instanceof HTMLInputElement ? document.activeElement.value : null;
    fill(this.list, ...found.slice(0, MOST).map((tag) => this.item(tag)));
    if (focused) this.list.querySelector<HTMLInputElement>(`input[value="${CSS.escape(focused)}"]`)?.focus();
    const more = found.length > MOST ? `, the first ${formatCount(MOST)} are listed` : "";
    const { problem } = this.filter;
    setText(
      this.note,
      `${plural(found.length, "tag")}${more}${problem === null ? "" : `. ${problem}: filtered by this text`}`,
    );
  }

  private item(tag: Tag): HTMLElement {
    const on = this.chosen.includes(tag.tag);
    const box = h("input", { type: "checkbox", value: tag.tag });
    box.checked = on;
    box.addEventListener("change", () => {
      const rest = this.chosen.filter((name) => name !== tag.tag);
      this.change({ tags: box.checked ? [...rest, tag.tag] : rest }, true);
    });
    return h(
      "label",
      { title: tag.tag },
      box,
      h("span", { class: "tag-name" }, tag.tag),
      h("span", { class: "muted num" }, formatCount(tag.points)),
    );
  }
}
