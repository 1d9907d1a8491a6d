/** How many runs are in each standing and each state; one click shows only those. */
import { STANDINGS, standingWords } from "../logic/findings";
import { formatCount, plural } from "../logic/format";
import type { UrlState } from "../logic/url_state";
import { RUN_STATES, wordOf } from "../logic/words";
import type { RunLine, Standing } from "../types/api";
import { fill, h } from "./element";

/** Above the list in any case, in this order; before what is unknown. */
const ALWAYS: readonly Standing[] = ["needs_you", "fine", "over"];

interface Button {
  class: string;
  title: string;
  said: (Node | string)[];
  /** What a click changes. */
  patch: Partial<UrlState>;
}

export class RunCounts {
  readonly standings = h("div", { class: "standings", role: "group", "aria-label": "How the runs are" });
  readonly chips = h("div", { class: "chips", role: "group", "aria-label": "Show one state only" });

  constructor(private readonly change: (patch: Partial<UrlState>, replace: boolean) => void) {}

  update(named: readonly RunLine[], { standing, state }: UrlState): void {
    const standings = countsOf(
      named.map((line) => line.standing),
      [...ALWAYS, standing],
    );
    this.#show(this.standings, standings, standing, (name, count, on) => {
      const { tone, meaning } = STANDINGS[name];
      return {
        class: `chip standing ${count ? tone : "dim"}`,
        title: `${meaning} ${on ? "Show all runs." : "Show only these."}`,
        said: [standingWords(name, count, formatCount(count))],
        patch: { standing: on ? null : name },
      };
    });
    const states = countsOf(
      named.map((line) => line.state),
      [state],
    );
    states.sort(([a], [b]) => wordOf(RUN_STATES, a).rank - wordOf(RUN_STATES, b).rank);
    this.#show(this.chips, states, state, (name, count, on) => {
      const { tone, glyph, label } = wordOf(RUN_STATES, name);
      return {
        class: `chip ${tone}`,
        title: on ? "Show all states" : `Only ${plural(count, "run")}: ${label}`,
        said: [h("span", { class: "glyph", "aria-hidden": "true" }, glyph), `${formatCount(count)} ${label}`],
        patch: { state: on ? null : name },
      };
    });
  }

  #show<Name>(
    bar: HTMLElement,
    counts: readonly [Name, number][],
    chosen: Name | null,
    button: (name: Name, count: number, on: boolean) => Button,
  ): void {
    const key = JSON.stringify([counts, chosen]);
    if (bar.dataset.key === key) return;
    bar.dataset.key = key;
    const buttons = counts.map(([name, count]) => {
      const on = chosen === name;
      const { said, patch, ...props } = button(name, count, on);
      const onclick = (): void => this.change(patch, true);
      return h("button", { ...props, "aria-pressed": String(on), onclick }, ...said);
    });
    fill(bar, ...buttons);
  }
}

/** How often each name is there; `wanted`, those that are listed in any case, come first. */
function countsOf<Name>(names: readonly Name[], wanted: readonly (Name | null)[]): [Name, number][] {
  const counts = new Map<Name, number>();
  for (const name of wanted) if (name !== null) counts.set(name, 0);
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts];
}
