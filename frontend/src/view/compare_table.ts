/** The compared runs as a table: values, cost, configuration; sorted, grouped, narrowed to what differs. */
import type { CompareColumn, CompareOrder } from "../logic/compare_columns";
import { bestOf, compareColumns, orderOf, shown, shownOfGroup, sortCompared } from "../logic/compare_columns";
import type { Cell, Separator } from "../logic/csv";
import { toCsv } from "../logic/csv";
import { formatCount, plural } from "../logic/format";
import type { Group } from "../logic/grouping";
import { groupsOf } from "../logic/grouping";
import type { UrlState } from "../logic/url_state";
import { RUN_STATES, wordOf } from "../logic/words";
import { capture } from "../net/matching";
import type { CompareAnswer, ComparedRun } from "../types/compare";
import { CheckList } from "./check_list";
import { h, pill, refresh, setText, swatch } from "./element";
import { searchBox } from "./filter_box";
import { exportButtons } from "./table_export";

const BEST: [UrlState["best"], string][] = [
  [null, "by its name"],
  ["min", "lowest"],
  ["max", "highest"],
];
const NO_GROUP = "not matched";

export class CompareTable {
  readonly #group = searchBox(
    "search group",
    "Group by name, such as lr=([^,/]*)",
    "Group runs by what a regular expression captures of their names",
    (group) => this.change({ group }, true),
  );
  readonly #best = h(
    "select",
    { "aria-label": "Which value of a tag is the best" },
    ...BEST.map(([value, label]) => h("option", { value: value ?? "" }, label)),
  );
  readonly #differences = h("input", { type: "checkbox" });
  readonly #picker = new CheckList("column", (key, on) => this.#toggleColumn(key, on));
  readonly #note = h("span", { class: "muted", role: "status" });
  readonly #head = h("tr", {});
  readonly #body = h("tbody", {});
  readonly element = h(
    "section",
    { class: "compare-table", "aria-label": "Runs" },
    h(
      "div",
      { class: "table-head" },
      h("h2", {}, "Runs"),
      this.#note,
      this.#group,
      h("label", { class: "control" }, "Best value:", this.#best),
      h("label", { class: "control" }, this.#differences, "Differences only"),
      this.#picker.element,
      ...exportButtons("the table of runs", "compared-runs.csv", (separator) => this.#text(separator)),
    ),
    h(
      "div",
      { class: "table-box", role: "region", tabindex: 0, "aria-label": "Compared runs" },
      h("table", {}, h("thead", {}, this.#head), this.#body),
    ),
  );
  #state: UrlState | null = null;
  #answer: CompareAnswer | null = null;
  #columns: CompareColumn[] = [];
  /** Those without texts. */
  #numbers: ReadonlySet<CompareColumn> = new Set();
  #order: CompareOrder | null = null;
  #groups: Group<ComparedRun>[] = [];
  #hovered: string | null = null;
  #drawn = "";
  /** Groups whose runs are listed. */
  readonly #open = new Set<string | null>();
  /** What the expression captured of each run, and which expression that was. */
  #captured: { by: string; of: ReadonlyMap<string, string | null> } = { by: "", of: new Map() };
  #problem = "";
  #asking: AbortController | null = null;
  #asked = "";

  /** `hover`: the run under the pointer, or with the focus; null for none. */
  constructor(
    private readonly change: (patch: Partial<UrlState>, replace: boolean) => void,
    private readonly hover: (run: string | null) => void,
  ) {
    this.#best.addEventListener("change", () =>
      change({ best: this.#best.value === "min" || this.#best.value === "max" ? this.#best.value : null }, true),
    );
    this.#differences.addEventListener("change", () => change({ onlyDiffering: this.#differences.checked }, true));
    this.#head.addEventListener("click", (event) => this.#onHead(event));
    this.#body.addEventListener("click", (event) => this.#onBody(event));
    for (const name of ["pointerover", "focusin"] as const)
      this.#body.addEventListener(name, (event) => this.hover(runAt(event)));
    for (const name of ["pointerleave", "focusout"] as const) this.#body.addEventListener(name, () => this.hover(null));
  }

  update(state: UrlState, answer: CompareAnswer, hovered: string | null): void {
    this.#state = state;
    this.#answer = answer;
    if (document.activeElement !== this.#group) this.#group.value = state.group;
    this.#best.value = state.best ?? "";
    this.#differences.checked = state.onlyDiffering;
    this.#ask(state.group, answer);
    this.#hovered = hovered;
    this.#show();
  }

  highlight(run: string | null): void {
    this.#hovered = run;
    for (const row of this.#body.rows) row.classList.toggle("active", run !== null && row.dataset.run === run);
  }

  close(): void {
    this.#asking?.abort();
  }

  /** Ask what the expression captures. */
  #ask(group: string, { runs }: CompareAnswer): void {
    const names = runs.map(({ run }) => run);
    const asked = JSON.stringify([group, names]);
    if (asked === this.#asked) return;
    this.#asked = asked;
    this.#asking?.abort();
    this.#asking = null;
    this.#problem = "";
    if (!group) return;
    try {
      new RegExp(group);
    } catch {
      this.#problem = "Not a regular expression: runs are not grouped";
      return;
    }
    const asking = new AbortController();
    this.#asking = asking;
    capture(group, names, asking.signal).then(
      (found) => {
        if (asking.signal.aborted) return;
        this.#captured = { by: group, of: new Map(names.map((name, i) => [name, found[i] ?? null])) };
        this.#show();
      },
      () => {
        if (asking.signal.aborted) return;
        this.#problem = "The regular expression takes too long: runs are not grouped";
        this.#show();
      },
    );
  }

  get #isGrouped(): boolean {
    return (
      this.#state !== null &&
      this.#state.group !== "" &&
      this.#problem === "" &&
      this.#captured.by === this.#state.group
    );
  }

  #show(): void {
    const state = this.#state,
      answer = this.#answer;
    if (!state || !answer) return;
    const all = compareColumns(answer.runs, state);
    const differing = new Set(answer.differing);
    const listed = all.filter(({ differs }) => !state.onlyDiffering || differs === null || differing.has(differs));
    this.#columns = listed.filter(({ key }) => !state.without.includes(key));
    this.#numbers = new Set(
      this.#columns.filter(({ value }) => answer.runs.every((run) => typeof value(run) !== "string")),
    );
    this.#picker.update(
      listed.map(({ key, name, title }) => ({ key, name, note: title })),
      new Set(this.#columns.map(({ key }) => key)),
    );
    this.#order = orderOf(state.compareSort, all);
    const sorted = sortCompared(answer.runs, this.#order, all);
    this.#groups = this.#isGrouped
      ? groupsOf(sorted, ({ run }) => this.#captured.of.get(run) ?? null)
      : [{ name: null, rows: sorted }];
    setText(this.#note, this.#problem || this.#countWords(answer.runs.length));
    const drawn = JSON.stringify([answer, state.chosen, state.baseline, [...this.#open], this.#order, this.#groups]);
    const key = `${drawn} ${this.#columns.map((column) => `${column.key} ${column.name}`).join("\n")}`;
    if (key === this.#drawn) return;
    this.#drawn = key;
    refresh(
      this.#head,
      this.#headCell("run", "Run", "", false),
      ...this.#columns.map((each) => this.#headCell(each.key, each.name, each.title, this.#numbers.has(each))),
    );
    const best = new Map(this.#columns.map((column) => [column.key, bestOf(column, answer.runs)]));
    refresh(this.#body, ...this.#groups.flatMap((group) => this.#rowsOf(group, best, state)));
    this.highlight(this.#hovered);
  }

  #countWords(count: number): string {
    return this.#isGrouped ? `${formatCount(count)} in ${plural(this.#groups.length, "group")}` : formatCount(count);
  }

  #headCell(key: string, name: string, title: string, isNumber: boolean): HTMLElement {
    const sorted = this.#order?.key === key ? (this.#order.descending ? "descending" : "ascending") : "none";
    return h(
      "th",
      { scope: "col", class: isNumber ? "num" : null, "aria-sort": sorted, title: title || null },
      h("button", { class: "plain", "data-key": key }, name),
    );
  }

  #rowsOf(group: Group<ComparedRun>, best: ReadonlyMap<string, number | null>, state: UrlState): HTMLTableRowElement[] {
    if (!this.#isGrouped) return group.rows.map((run) => this.#rowOf(run, best, state));
    const open = this.#open.has(group.name);
    const head = h(
      "tr",
      { class: "group-row" },
      h(
        "th",
        { scope: "row" },
        h(
          "button",
          {
            class: "plain",
            "data-group": group.name === null ? "" : `=${group.name}`,
            "aria-expanded": String(open),
          },
          `${open ? "▾" : "▸"} ${group.name ?? NO_GROUP}`,
        ),
        h("span", { class: "muted" }, ` ${plural(group.rows.length, "run")}`),
      ),
      ...this.#columns.map((column) => {
        const { text, range } = shownOfGroup(column, group.rows);
        return h(
          "td",
          { class: range ? "num" : "", title: range ? "Mean, lowest to highest" : null },
          text,
          range && h("span", { class: "muted" }, ` ${range}`),
        );
      }),
    );
    return [head, ...(open ? group.rows.map((run) => this.#rowOf(run, best, state)) : [])];
  }

  #rowOf(run: ComparedRun, best: ReadonlyMap<string, number | null>, state: UrlState): HTMLTableRowElement {
    const { colour } = state.chosen.find((chosen) => chosen.run === run.run) ?? {};
    return h(
      "tr",
      { "data-run": run.run, class: run.run === state.baseline ? "baseline" : null },
      h(
        "th",
        { scope: "row" },
        colour !== undefined && swatch(colour),
        h("button", { class: "plain run-name", "data-open": run.run, title: "Open its page" }, run.run),
      ),
      ...this.#columns.map((column) => this.#cellOf(column, run, best.get(column.key) ?? null)),
    );
  }

  #cellOf(column: CompareColumn, run: ComparedRun, best: number | null): HTMLElement {
    const value = column.value(run);
    if (column.key === "state" && run.state)
      return h("td", { title: run.problem }, pill(wordOf(RUN_STATES, run.state)));
    const isBest = best !== null && value === best;
    const bad = column.key === "nonfinite" && Number(value) > 0;
    const detail = column.detail?.(run) ?? "";
    return h(
      "td",
      { class: `${this.#numbers.has(column) ? "num" : ""}${isBest ? " best" : ""}${bad ? " bad-text" : ""}` },
      isBest && h("span", { class: "sign", role: "img", "aria-label": "best", title: "The best of these runs" }, "★ "),
      value === null && detail ? null : shown(column, value),
      detail && h("span", { class: "muted" }, ` ${detail}`),
    );
  }

  #toggleColumn(key: string, on: boolean): void {
    const rest = (this.#state?.without ?? []).filter((name) => name !== key);
    this.change({ without: on ? rest : [...rest, key] }, true);
  }

  #onHead(event: Event): void {
    const key = closest(event, "[data-key]")?.dataset.key;
    if (key === undefined) return;
    const best = this.#columns.find((column) => column.key === key)?.best;
    const descending = this.#order?.key === key ? !this.#order.descending : best === "max";
    this.change({ compareSort: descending ? `-${key}` : key }, true);
  }

  #onBody(event: Event): void {
    const run = closest(event, "[data-open]")?.dataset.open;
    if (run !== undefined) this.change({ run, zoom: null, tags: null }, false);
    const group = closest(event, "[data-group]")?.dataset.group;
    if (group === undefined) return;
    const name = group === "" ? null : group.slice(1);
    if (!this.#open.delete(name)) this.#open.add(name);
    this.#show();
  }

  /** What is shown: raw numbers, in the same order, with the group of each run. */
  #text(separator: Separator): string {
    const cells = this.#columns.flatMap((column) => column.csv);
    const grouped = this.#isGrouped;
    return toCsv(
      [...(grouped ? ["group"] : []), "run", ...cells.map(([name]) => name)],
      this.#groups.flatMap(({ name, rows }) =>
        rows.map((run): Cell[] => [...(grouped ? [name] : []), run.run, ...cells.map(([, value]) => value(run))]),
      ),
      separator,
    );
  }
}

const closest = (event: Event, selector: string): HTMLElement | null =>
  event.target instanceof Element ? event.target.closest<HTMLElement>(selector) : null;

const runAt = (event: Event): string | null => closest(event, "tr")?.dataset.run ?? null;
