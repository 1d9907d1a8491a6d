/** How many runs are in each standing and each state; one click shows only those. */
import { STANDINGS, standingWords } from "../logic/findings";
import { formatCount, plural } from "../logic/format";
import type { UrlState } from "../logic/url_state";
import { RUN_STATES, wordOf } from "../logic/words";
import type { RunLine, RunState, Standing } from "../types/api";
import { fill, h } from "./element";

/** Above the list, in this order. */
const ORDER: readonly Standing[] = ["needs_you", "fine", "over", "unknown"];

export class RunCounts {
  readonly standings = h("div", { class: "standings", role: "group", "aria-label": "How the runs are" });
  readonly chips = h("div", { class: "chips", role: "group", "aria-label": "Show one state only" });

  constructor(private readonly change: (patch: Partial<UrlState>, replace: boolean) => void) {}

  update(named: readonly RunLine[], { standing, state }: UrlState): void {
    this.#showStandings(named, standing);
    this.#showChips(named, state);
  }

  #showStandings(named: readonly RunLine[], chosen: Standing | null): void {
    const counts = new Map<Standing, number>();
    for (const { standing } of named) counts.set(standing, (counts.get(standing) ?? 0) + 1);
    const shown = (Object.keys(STANDINGS) as Standing[])
      .filter((name) => name !== "unknown" || name === chosen || counts.has(name))
      .sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b));
    const key = shown.map((name) => `${name}:${counts.get(name)}`).join() + chosen;
    if (this.standings.dataset.key === key) return;
    this.standings.dataset.key = key;
    fill(
      this.standings,
      ...shown.map((name) => {
        const word = STANDINGS[name];
        const count = counts.get(name) ?? 0;
        const on = chosen === name;
        return h(
          "button",
          {
            class: `chip standing ${count ? word.tone : "dim"}`,
            "aria-pressed": String(on),
            title: `${word.meaning} ${on ? "Show all runs." : "Show only these."}`,
            onclick: () => this.change({ standing: on ? null : name }, true),
          },
          standingWords(name, count, formatCount(count)),
        );
      }),
    );
  }

  #showChips(named: readonly RunLine[], chosen: string | null): void {
    const counts = new Map<string, number>();
    for (const line of named) counts.set(line.state, (counts.get(line.state) ?? 0) + 1);
    if (chosen && !counts.has(chosen)) counts.set(chosen, 0);
    const keys = [...counts.keys()].sort((a, b) => wordOf(RUN_STATES, a).rank - wordOf(RUN_STATES, b).rank);
    const key = keys.map((k) => `${k}:${counts.get(k)}`).join() + chosen;
    if (this.chips.dataset.key === key) return;
    this.chips.dataset.key = key;
    fill(
      this.chips,
      ...keys.map((name) => {
        const word = wordOf(RUN_STATES, name as RunState);
        const on = chosen === name;
        return h(
          "button",
          {
            class: `chip ${word.tone}`,
            "aria-pressed": String(on),
            title: on ? "Show all states" : `Only ${plural(counts.get(name) ?? 0, "run")}: ${word.label}`,
            onclick: () => this.change({ state: on ? null : name }, true),
          },
          h("span", { class: "glyph", "aria-hidden": "true" }, word.glyph),
          `${formatCount(counts.get(name))} ${word.label}`,
        );
      }),
    );
  }
}
