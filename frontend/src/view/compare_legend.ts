/** The compared runs in their colours, with the values of one tag at the cursor. */
import { formatCount, formatMoment, formatValue } from "../logic/format";
import type { Reading } from "../logic/overlay";
import { difference, shortNames } from "../logic/overlay";
import type { Chosen } from "../logic/url_state";
import { fill, h, iconButton, setAttribute, setText, swatch } from "./element";

export interface LegendListener {
  open(run: string): void;
  pin(run: string | null): void;
  remove(run: string): void;
  hovered(run: string | null): void;
  chooseTag(tag: string): void;
}

interface Row {
  element: HTMLElement;
  pin: HTMLButtonElement;
  cells: Record<"raw" | "smoothed" | "step" | "difference", HTMLElement>;
}

const head = (name: string, title?: string): HTMLElement => h("th", { scope: "col", class: "num", title }, name);
const cell = (): HTMLElement => h("td", { class: "num" });

export class CompareLegend {
  readonly #select = h("select", { "aria-label": "Tag whose values are listed" });
  readonly #where = h("span", { class: "muted" });
  readonly #body = h("tbody", {});
  readonly #smoothedHead = head("Smoothed");
  readonly #differenceHead = head("Δ", "Difference to the baseline");
  readonly element = h(
    "section",
    { class: "compare-legend", "aria-label": "Values at the cursor" },
    h("div", { class: "table-head" }, this.#select, this.#where),
    h(
      "div",
      { class: "table-box", role: "region", tabindex: 0, "aria-label": "Values of the compared runs" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Run"),
            head("Value"),
            this.#smoothedHead,
            this.#differenceHead,
            head("Step"),
          ),
        ),
        this.#body,
      ),
    ),
  );
  #rows = new Map<string, Row>();
  #key = "";
  #tags = "";

  constructor(private readonly to: LegendListener) {
    this.#select.addEventListener("change", () => to.chooseTag(this.#select.value));
  }

  update(chosen: readonly Chosen[], baseline: string | null, tags: readonly string[]): void {
    const key = JSON.stringify(chosen);
    if (key !== this.#key) {
      this.#key = key;
      const short = shortNames(chosen.map(({ run }) => run));
      this.#rows = new Map(chosen.map((each, i) => [each.run, this.#row(each, short[i] as string)]));
      fill(this.#body, ...[...this.#rows.values()].map(({ element }) => element));
    }
    for (const [run, { pin, element }] of this.#rows) {
      setAttribute(pin, "aria-pressed", String(run === baseline));
      element.classList.toggle("baseline", run === baseline);
    }
    const names = JSON.stringify(tags);
    if (names !== this.#tags) {
      this.#tags = names;
      fill(this.#select, ...tags.map((tag) => h("option", { value: tag }, tag)));
    }
  }

  /** `x`: the place of the cursor in words; null where the last values are listed. */
  read(tag: string | null, x: string | null, of: ReadonlyMap<string, Reading | null>, baseline: string | null): void {
    if (tag !== null) this.#select.value = tag;
    setText(this.#where, x ?? "last values");
    const smoothed = [...of.values()].some((reading) => reading !== null && reading.smoothed !== null);
    const base = baseline === null ? null : (of.get(baseline) ?? null);
    this.#smoothedHead.hidden = !smoothed;
    this.#differenceHead.hidden = baseline === null;
    for (const [run, { cells, element }] of this.#rows) {
      const reading = of.get(run) ?? null;
      setText(cells.raw, formatValue(reading?.raw));
      setText(cells.smoothed, formatValue(reading?.smoothed));
      setText(cells.difference, run === baseline ? "" : signed(difference(reading, base)));
      setText(cells.step, formatCount(reading?.step));
      cells.smoothed.hidden = !smoothed;
      cells.difference.hidden = baseline === null;
      const when = reading ? `${reading.recomputed ? "Recomputed later. " : ""}${formatMoment(reading.wall)}` : "";
      setAttribute(element, "title", when || null);
    }
  }

  highlight(run: string | null): void {
    for (const [name, { element }] of this.#rows) element.classList.toggle("active", name === run);
  }

  #row({ run, colour }: Chosen, short: string): Row {
    const strong = "Baseline: drawn strong, the others are compared with it";
    const pin = iconButton("⚑", `Baseline ${run}`, strong, () =>
      this.to.pin(pin.getAttribute("aria-pressed") === "true" ? null : run),
    );
    const remove = iconButton("×", `Compare without ${run}`, "Compare without this run", () => this.to.remove(run));
    const name = h(
      "button",
      { class: "plain run-name", title: `${run}: open its page`, onclick: () => this.to.open(run) },
      short,
    );
    const cells = { raw: cell(), smoothed: cell(), difference: cell(), step: cell() };
    const element = h(
      "tr",
      {
        onpointerenter: () => this.to.hovered(run),
        onpointerleave: () => this.to.hovered(null),
        onfocusin: () => this.to.hovered(run),
        onfocusout: () => this.to.hovered(null),
      },
      h("th", { scope: "row" }, h("div", {}, swatch(colour), name, pin, remove)),
      cells.raw,
      cells.smoothed,
      cells.difference,
      cells.step,
    );
    return { element, pin, cells };
  }
}

const signed = (value: number | null): string =>
  value === null ? formatValue(null) : `${value > 0 ? "+" : ""}${formatValue(value)}`;
