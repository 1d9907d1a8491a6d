/** Every run, one line each; only the lines that can be seen are in the page. */
import { NameFilter } from "../logic/filter";
import { formatCount, titleOf } from "../logic/format";
import { isHidden } from "../logic/hidden";
import { columnText, isColumn, listCsv, namesOf } from "../logic/list_columns";
import { labelWords } from "../logic/placement";
import { rowAfter, scrollToRow, topsOf, visibleRows } from "../logic/rows";
import type { SortKey } from "../logic/sort";
import { isSortKey, sortRuns, startsDescending } from "../logic/sort";
import type { UrlState } from "../logic/url_state";
import { AGES } from "../logic/url_state";
import { match } from "../net/matching";
import type { RunLine } from "../types/api";
import { Choices } from "./choices";
import { Choosing } from "./choosing";
import { h, remPx, setAttribute, setText } from "./element";
import { runFilterBox } from "./filter_box";
import { ListColumns } from "./list_columns";
import { FindingRuler } from "./row_finding";
import { RunCounts } from "./run_counts";
import { RunRow } from "./run_row";
import { exportButtons } from "./table_export";

const HEADS: [SortKey, string, string][] = [
  ["state", "State", "state"],
  ["run", "Run", "name"],
  ["step", "Step", "step num"],
  ["rate", "Steps/s", "rate num"],
  ["checkpoint", "Checkpoint", "checkpoint"],
  ["restarts", "Restarts", "restarts num"],
  ["goodput", "Goodput", "goodput num"],
  ["last", "Last seen", "seen num"],
];
const AGE_LABELS: [string | null, string, string][] = [
  ["24h", "24 h", "Runs seen in the last 24 hours"],
  ["7d", "7 d", "Runs seen in the last 7 days"],
  [null, "All", "Runs of any age"],
];
const NARROW = window.matchMedia("(max-width: 919px)");

export class Overview {
  readonly #search = runFilterBox((filter) => this.change({ filter }, true));
  readonly #counts: RunCounts;
  readonly #ages = new Choices("Last seen", AGE_LABELS, (age) => this.change({ age }, true));
  readonly #hiddenButton = h("button", {
    class: "hidden-toggle",
    hidden: true,
    onclick: () => this.change({ showHidden: !this.state.showHidden }, true),
  });
  readonly #choosing: Choosing;
  readonly #columns: ListColumns;
  readonly #note = h("div", { class: "note", role: "status" });
  readonly #heads = new Map<SortKey, HTMLElement>();
  readonly #spacer = h("div", { class: "spacer", role: "presentation" });
  readonly #body = h("div", { class: "body", role: "rowgroup" }, this.#spacer);
  readonly #grid: HTMLElement;
  readonly element: HTMLElement;
  readonly #filter = new NameFilter(match, () => this.#updateAgain());
  readonly #ruler = new FindingRuler();
  #rows: RunRow[] = [];
  #tops = topsOf([]);
  /** What the heights of rows depend on, besides the runs. */
  #measured = "";
  /** What is drawn stays as it is. */
  #printing = false;
  #lines: RunLine[] = [];
  #all: RunLine[] = [];
  #active = 0;
  #activeRun: string | null = null;
  #frame = 0;
  #now = 0;
  #logdir = "";

  constructor(
    private state: UrlState,
    private readonly change: (patch: Partial<UrlState>, replace: boolean) => void,
    private readonly hide: (line: RunLine, hidden: boolean) => void,
  ) {
    this.#choosing = new Choosing(change);
    this.#counts = new RunCounts(change);
    this.#columns = new ListColumns(change, () => this.#updateAgain());
    const header = h("div", { class: "row head", role: "row", "aria-rowindex": 1 });
    header.append(h("div", { class: "cell choice", role: "columnheader" }, this.#choosing.head));
    for (const [key, label, name] of HEADS) header.append(this.#headOf(key, label, name));
    header.append(h("div", { class: "cell hide", role: "columnheader" }, h("span", { class: "spoken" }, "Hide")));
    this.#grid = h(
      "div",
      {
        class: "runs",
        role: "grid",
        tabindex: 0,
        "aria-label": "Runs",
        "aria-multiselectable": "true",
        onkeydown: (event: KeyboardEvent) => this.#onKey(event),
      },
      h("div", { role: "rowgroup", class: "heads" }, header),
      this.#body,
    );
    this.#grid.addEventListener("scroll", () => this.#schedule(), { passive: true });
    new ResizeObserver(() => this.#schedule()).observe(this.#grid);
    this.#search.addEventListener("keydown", (event) => this.#onSearchKey(event));
    this.element = h(
      "section",
      { class: "overview", "aria-label": "All runs" },
      this.#counts.standings,
      h(
        "div",
        { class: "toolbar" },
        this.#search,
        this.#choosing.bar,
        this.#ages.element,
        this.#hiddenButton,
        this.#columns.picker.element,
        ...exportButtons("the list of runs", "runs.csv", (separator) =>
          listCsv(this.#lines, this.#columns.keys, this.#columns.values, separator),
        ),
        this.#counts.chips,
      ),
      this.#note,
      this.#grid,
    );
  }

  /** Show these runs as the address says. */
  update(all: RunLine[], state: UrlState, now: number, logdir: string): void {
    this.#logdir = logdir;
    this.#all = all;
    this.state = state;
    this.#now = now;
    if (document.activeElement !== this.#search) this.#search.value = state.filter;
    const since = state.age === null ? -Infinity : now - (AGES[state.age] ?? Infinity);
    const recent =
      state.age === null ? all : all.filter((line) => line.last_event !== null && line.last_event >= since);
    const listed = state.showHidden ? recent : recent.filter((line) => !isHidden(state.hidden, line));
    const named = this.#filter.select(state.filter, listed, (line) => [line.run, ...labelWords(line.labels)]);
    const chosen = named.filter(
      (line) => (!state.state || line.state === state.state) && (!state.standing || line.standing === state.standing),
    );
    this.#columns.update(state);
    this.#lines = sortRuns(chosen, state.sort, (key, run) => this.#columns.values.of(key, run));
    this.#measured = "";
    this.#ages.show(state.age);
    setAttribute(this.#grid, "aria-busy", String(this.#filter.isAsking));
    this.#search.classList.toggle("wrong", this.#filter.problem !== null);
    this.#choosing.update(
      this.#lines.map(({ run }) => run),
      state.chosen,
    );
    this.#showHiddenCount();
    this.#showNote(this.#filter.problem);
    this.#counts.update(named, state);
    this.#showColumns(this.#columns.keys);
    for (const [key, head] of this.#heads) {
      const sorted = key === state.sort.key;
      setAttribute(head, "aria-sort", sorted ? (state.sort.descending ? "descending" : "ascending") : "none");
    }
    const kept = this.#activeRun === null ? -1 : this.#lines.findIndex((line) => line.run === this.#activeRun);
    this.#active = kept >= 0 ? kept : Math.min(this.#active, Math.max(0, this.#lines.length - 1));
    setAttribute(this.#grid, "aria-rowcount", String(this.#lines.length + 1));
    this.#draw();
  }

  #updateAgain(): void {
    this.update(this.#all, this.state, this.#now, this.#logdir);
  }

  /** Ask for what may have changed; whether there was an answer. */
  load(changed: Set<string>): Promise<boolean> {
    return changed.size ? this.#columns.load() : Promise.resolve(true);
  }

  #headOf(key: SortKey, label: string, name: string): HTMLElement {
    const button = h("button", { class: "plain", title: label, onclick: () => this.#sortBy(key) }, label);
    const head = h("div", { class: `cell ${name}`, role: "columnheader" }, button);
    this.#heads.set(key, head);
    return head;
  }

  /** The heads and the room of chosen columns. */
  #showColumns(keys: readonly string[]): void {
    if (keys.join("\n") === this.#grid.dataset.columns) return;
    this.#grid.dataset.columns = keys.join("\n");
    for (const [key, head] of this.#heads) {
      if (!isColumn(key)) continue;
      head.remove();
      this.#heads.delete(key);
    }
    for (const key of keys)
      if (isSortKey(key)) this.#heads.get("step")?.before(this.#headOf(key, namesOf(key).name, "num further"));
    this.#grid.classList.toggle("wide", keys.length > 0);
    this.#grid.style.setProperty("--further", keys.length ? `repeat(${keys.length}, 6.5rem)` : "");
    this.#grid.style.setProperty("--columns", String(keys.length));
  }

  focus(): void {
    this.#grid.focus({ preventScroll: true });
  }

  focusSearch(): void {
    this.#search.focus();
    this.#search.select();
  }

  #showNote(problem: string | null): void {
    const shown = this.#lines.length;
    const of = shown === this.#all.length ? "" : ` of ${formatCount(this.#all.length)}`;
    const wrong = problem === null ? "" : `. ${problem}: filtered by this text`;
    const none = shown === 0 && this.#all.length > 0 ? ". Nothing matches: Escape in the filter shows all" : "";
    setText(
      this.#note,
      `${formatCount(shown)}${of} ${shown === 1 && !of ? "run" : "runs"}${wrong}${none}${this.#choosing.limit}`,
    );
  }

  #showHiddenCount(): void {
    const { hidden, showHidden } = this.state;
    const count = hidden.size ? this.#all.filter((line) => isHidden(hidden, line)).length : 0;
    this.#hiddenButton.hidden = count === 0 && !showHidden;
    setText(this.#hiddenButton, `${formatCount(count)} hidden`);
    setAttribute(this.#hiddenButton, "aria-pressed", String(showHidden));
    setAttribute(this.#hiddenButton, "title", showHidden ? "Leave hidden runs out" : "List hidden runs, too");
  }

  /** Hide a run that is listed, or list a hidden one again. */
  #toggleHidden(line: RunLine | undefined): void {
    if (line) this.hide(line, !isHidden(this.state.hidden, line));
  }

  /** Draw the rows that there is room for by now: all of them, where the list is as high as they are. */
  print(printing: boolean): void {
    this.#printing = printing;
    for (const row of this.#rows.splice(0)) row.element.remove();
    this.#draw();
  }

  #sortBy(key: SortKey): void {
    const { sort } = this.state;
    const descending = sort.key === key ? !sort.descending : startsDescending(key);
    this.change({ sort: { key, descending } }, true);
  }

  #measure(): void {
    const [rem, width] = [remPx(), this.#grid.clientWidth];
    const key = `${rem} ${width} ${NARROW.matches}`;
    if (key === this.#measured) return;
    this.#measured = key;
    const base = (NARROW.matches ? 3.625 : 2.25) * rem;
    const room = width - 2 * (NARROW.matches ? 12 : 16);
    this.#grid.style.setProperty("--room", `${room}px`);
    this.#tops = topsOf(this.#lines.map((line) => base + this.#ruler.heightOf(line, room, this.#now, this.#grid)));
  }

  #schedule(): void {
    if (this.#printing) return;
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw(): void {
    this.#measure();
    const tops = this.#tops;
    this.#spacer.style.height = `${tops.at(-1)}px`;
    const slice = visibleRows(this.#grid.scrollTop, this.#grid.clientHeight, tops);
    while (this.#rows.length < slice.end - slice.first) {
      const row = new RunRow(
        (name) => this.#open(name),
        (name, ranging) => this.#choose(name, ranging),
        (name) => this.#toggleHidden(this.#lines.find((line) => line.run === name)),
      );
      this.#rows.push(row);
      this.#body.append(row.element);
    }
    this.#rows.forEach((row, i) => {
      // A row keeps its place in the pool while the list scrolls, so that few of them change.
      const pool = this.#rows.length;
      const index = slice.first + ((((i - slice.first) % pool) + pool) % pool);
      const line = index < slice.end ? this.#lines[index] : undefined;
      row.element.hidden = !line;
      if (!line) {
        row.element.removeAttribute("id");
        return;
      }
      const top = tops[index] as number;
      row.element.style.transform = `translateY(${top}px)`;
      row.element.style.height = `${(tops[index + 1] as number) - top}px`;
      row.show(
        line,
        titleOf(line.run, this.#logdir),
        index,
        index === this.#active,
        isHidden(this.state.hidden, line),
        this.#choosing.colourOf(line.run),
        this.#columns.keys.map((key) => columnText(key, this.#columns.values.of(key, line.run))),
        this.#now,
      );
    });
    setAttribute(this.#grid, "aria-activedescendant", this.#lines.length ? `run-${this.#active}` : null);
  }

  #open(name: string): void {
    this.#activeRun = name;
    this.change({ run: name, zoom: null, tags: null }, false);
  }

  #choose(name: string, ranging: boolean): void {
    this.#activeRun = name;
    this.#choosing.toggle(name, ranging);
    this.focus();
  }

  #onSearchKey(event: KeyboardEvent): void {
    if (event.key === "Escape") {
      this.#search.value = "";
      this.change({ filter: "", state: null, standing: null, age: null }, true);
      this.focus();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      this.focus();
      if (event.key === "Enter" && this.#lines.length === 1) this.#open((this.#lines[0] as RunLine).run);
    }
  }

  #onKey(event: KeyboardEvent): void {
    if (event.target !== this.#grid) return;
    const row = rowAfter(event.key, this.#active, this.#tops, this.#grid.clientHeight);
    if (row !== null) {
      event.preventDefault();
      const from = this.#lines[this.#active];
      this.#moveTo(row);
      const to = this.#lines[this.#active];
      if (event.shiftKey && from && to) this.#choosing.extend(from.run, to.run);
      else this.#choosing.settle();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      const line = this.#lines[this.#active];
      if (!line) return;
      if (event.key === "Enter") this.#open(line.run);
      else this.#choose(line.run, event.shiftKey);
    } else if (event.key === "a" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.#choosing.toggleAll();
    } else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key === "h") this.#toggleHidden(this.#lines[this.#active]);
    else if (event.key === "c") this.#rows.find((row) => row.element.id === `run-${this.#active}`)?.copyCommand();
  }

  #moveTo(index: number): void {
    this.#active = Math.max(0, Math.min(this.#lines.length - 1, index));
    this.#activeRun = this.#lines[this.#active]?.run ?? null;
    const head = this.#grid.firstElementChild?.clientHeight ?? 0;
    const top = scrollToRow(this.#active, this.#grid.scrollTop, this.#grid.clientHeight - head, this.#tops);
    if (top !== null) this.#grid.scrollTop = top;
    this.#draw();
  }
}
