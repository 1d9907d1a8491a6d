/** Choosing runs of the list for the comparison: one by one, from one to another, and all that are listed. */
import { namesBetween, withoutRuns, withRuns } from "../logic/choice";
import { formatCount, plural } from "../logic/format";
import type { Chosen, UrlState } from "../logic/url_state";
import { MOST_CHOSEN } from "../logic/url_state";
import { h, setAttribute, setText } from "./element";

export class Choosing {
  readonly #all = h("input", { type: "checkbox", onclick: () => this.toggleAll() });
  /** For the head of the list. */
  readonly head = h("label", { class: "check" }, this.#all);
  readonly #compare = h("button", {
    class: "compare-button",
    onclick: () => this.change({ view: "compare" }, false),
  });
  readonly #clear = h("button", { "aria-label": "Choose no runs", onclick: () => this.#set([]) }, "Clear");
  readonly bar = h(
    "div",
    { class: "choosing", role: "group", "aria-label": "Chosen runs" },
    this.#compare,
    this.#clear,
  );
  #names: readonly string[] = [];
  #chosen: readonly Chosen[] = [];
  #colours = new Map<string, number>();
  /** The run that was chosen, or not any more, last: where Shift begins. */
  #anchor: string | null = null;
  /** What was chosen before Shift and arrows began at the anchor. */
  #before: readonly Chosen[] | null = null;

  constructor(private readonly change: (patch: Partial<UrlState>, replace: boolean) => void) {}

  /** `names`: the runs that are listed, in their order. */
  update(names: readonly string[], chosen: readonly Chosen[]): void {
    this.#names = names;
    this.#chosen = chosen;
    this.#colours = new Map(chosen.map(({ run, colour }) => [run, colour]));
    const count = names.filter((name) => this.#colours.has(name)).length;
    this.#all.checked = count > 0 && count === names.length;
    this.#all.indeterminate = count > 0 && count < names.length;
    const most = names.length > MOST_CHOSEN ? `, at most ${MOST_CHOSEN}` : "";
    setAttribute(this.#all, "aria-label", `Choose all listed runs${most}`);
    setAttribute(this.head, "title", `Choose all ${plural(names.length, "run")} that are listed${most} (Ctrl + a)`);
    const enough = chosen.length >= 2;
    this.#compare.disabled = !enough;
    setText(this.#compare, chosen.length ? `Compare ${formatCount(chosen.length)}` : "Compare");
    const hint = "Choose at least two runs: their checkboxes, Shift for a range; Space and Shift + arrows in the list";
    setAttribute(
      this.#compare,
      "title",
      enough ? "Their curves in one chart per tag, and a table of their values" : hint,
    );
    this.#clear.hidden = chosen.length === 0;
  }

  /** Why no other run can be chosen; empty where one can. */
  get limit(): string {
    return this.#chosen.length < MOST_CHOSEN ? "" : `. ${MOST_CHOSEN} runs are chosen: no more can be compared`;
  }

  colourOf(run: string): number | null {
    return this.#colours.get(run) ?? null;
  }

  /** Choose a run, or no longer; with `ranging` all from the one before to it, too. */
  toggle(run: string, ranging: boolean): void {
    this.#before = null;
    const runs = ranging && this.#anchor !== null ? namesBetween(this.#names, this.#anchor, run) : [run];
    this.#anchor = run;
    this.#set(this.#colours.has(run) ? withoutRuns(this.#chosen, runs) : withRuns(this.#chosen, runs));
  }

  /** Shift and arrows: all from where that began, at `from`, to `to`. */
  extend(from: string, to: string): void {
    if (this.#before === null || this.#anchor === null) {
      this.#anchor = from;
      this.#before = this.#chosen;
    }
    this.#set(withRuns(this.#before, namesBetween(this.#names, this.#anchor, to)));
  }

  /** The next Shift begins where the list is then. */
  settle(): void {
    this.#before = null;
  }

  toggleAll(): void {
    this.#before = null;
    const more = withRuns(this.#chosen, this.#names);
    this.#set(more.length > this.#chosen.length ? more : withoutRuns(this.#chosen, this.#names));
  }

  #set(chosen: Chosen[]): void {
    this.change({ chosen }, true);
    // The browser has set its own mark; what counts is what is chosen now.
    this.update(this.#names, this.#chosen);
  }
}
