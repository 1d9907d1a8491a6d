/** Every run, one line each; only the lines that can be seen are in the page. */
import { NameFilter } from "../logic/filter";
import { STANDINGS, standingWords } from "../logic/findings";
import { formatCount, plural, titleOf } from "../logic/format";
import { isHidden } from "../logic/hidden";
import { rowAt, scrollToRow, topsOf, visibleRows } from "../logic/rows";
import type { SortKey } from "../logic/sort";
import { sortRuns, startsDescending } from "../logic/sort";
import type { UrlState } from "../logic/url_state";
import { AGES } from "../logic/url_state";
import { RUN_STATES, wordOf } from "../logic/words";
import { match } from "../net/matching";
import type { RunLine, RunState, Standing } from "../types/api";
import { fill, h, remPx, setAttribute, setText } from "./element";
import { FindingRuler } from "./row_finding";
import { RunRow } from "./run_row";

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
/** Above the list, in this order. */
const ORDER: readonly Standing[] = ["needs_you", "fine", "over", "unknown"];
const NARROW = window.matchMedia("(max-width: 879px)");

export class Overview {
  private readonly search = h("input", {
    type: "search",
    class: "search",
    placeholder: "Filter runs (regular expression)   /",
    "aria-label": "Filter runs by a regular expression",
    spellcheck: "false",
    autocomplete: "off",
  });
  private readonly standings = h("div", { class: "standings", role: "group", "aria-label": "How the runs are" });
  private readonly chips = h("div", { class: "chips", role: "group", "aria-label": "Show one state only" });
  private readonly ages = AGE_LABELS.map(([age, label, title]) => ({
    age,
    button: h("button", { type: "button", title, onclick: () => this.change({ age }, true) }, label),
  }));
  private readonly hiddenButton = h("button", {
    type: "button",
    class: "hidden-toggle",
    hidden: true,
    onclick: () => this.change({ showHidden: !this.state.showHidden }, true),
  });
  private readonly note = h("div", { class: "note", role: "status" });
  private readonly heads = new Map<SortKey, HTMLElement>();
  private readonly spacer = h("div", { class: "spacer", role: "presentation" });
  private readonly body = h("div", { class: "body", role: "rowgroup" }, this.spacer);
  private readonly grid: HTMLElement;
  readonly element: HTMLElement;
  private readonly filter = new NameFilter(match, () => this.update(this.all, this.state, this.now, this.logdir));
  private readonly ruler = new FindingRuler();
  private rows: RunRow[] = [];
  private tops = topsOf([]);
  /** What the heights of rows depend on, besides the runs. */
  private measured = "";
  /** What is drawn stays as it is. */
  private printing = false;
  private lines: RunLine[] = [];
  private all: RunLine[] = [];
  private active = 0;
  private activeRun: string | null = null;
  private frame = 0;
  private now = 0;
  private logdir = "";

  constructor(
    private state: UrlState,
    private readonly change: (patch: Partial<UrlState>, replace: boolean) => void,
    private readonly hide: (line: RunLine, hidden: boolean) => void,
  ) {
    const header = h("div", { class: "row head", role: "row", "aria-rowindex": 1 });
    for (const [key, label, name] of HEADS) {
      const button = h("button", { type: "button", onclick: () => this.sortBy(key) }, label);
      const head = h("div", { class: `cell ${name}`, role: "columnheader" }, button);
      this.heads.set(key, head);
      header.append(head);
    }
    header.append(h("div", { class: "cell hide", role: "columnheader" }, h("span", { class: "spoken" }, "Hide")));
    this.grid = h(
      "div",
      {
        class: "runs",
        role: "grid",
        tabindex: 0,
        "aria-label": "Runs",
        onkeydown: (event: KeyboardEvent) => this.onKey(event),
      },
      h("div", { role: "rowgroup", class: "heads" }, header),
      this.body,
    );
    this.grid.addEventListener("scroll", () => this.schedule(), { passive: true });
    new ResizeObserver(() => this.schedule()).observe(this.grid);
    this.search.addEventListener("input", () => this.change({ filter: this.search.value }, true));
    this.search.addEventListener("keydown", (event) => this.onSearchKey(event));
    this.element = h(
      "section",
      { class: "overview", "aria-label": "All runs" },
      this.standings,
      h(
        "div",
        { class: "toolbar" },
        this.search,
        h(
          "div",
          { class: "segmented", role: "group", "aria-label": "Last seen" },
          ...this.ages.map((item) => item.button),
        ),
        this.hiddenButton,
        this.chips,
      ),
      this.note,
      this.grid,
    );
  }

  /** Show these runs as the address says. */
  update(all: RunLine[], state: UrlState, now: number, logdir: string): void {
    this.logdir = logdir;
    this.all = all;
    this.state = state;
    this.now = now;
    if (document.activeElement !== this.search) this.search.value = state.filter;
    const since = state.age === null ? -Infinity : now - (AGES[state.age] ?? Infinity);
    const recent =
      state.age === null ? all : all.filter((line) => line.last_event !== null && line.last_event >= since);
    const listed = state.showHidden ? recent : recent.filter((line) => !isHidden(state.hidden, line));
    const named = this.filter.select(state.filter, listed, (line) => line.run);
    const chosen = named.filter(
      (line) => (!state.state || line.state === state.state) && (!state.standing || line.standing === state.standing),
    );
    this.lines = sortRuns(chosen, state.sort);
    this.measured = "";
    for (const { age, button } of this.ages) setAttribute(button, "aria-pressed", String(age === state.age));
    setAttribute(this.grid, "aria-busy", String(this.filter.isAsking));
    this.search.classList.toggle("wrong", this.filter.problem !== null);
    this.showHiddenCount();
    this.showNote(this.filter.problem);
    this.showStandings(named);
    this.showChips(named);
    for (const [key, head] of this.heads) {
      const sorted = key === state.sort.key;
      setAttribute(head, "aria-sort", sorted ? (state.sort.descending ? "descending" : "ascending") : "none");
    }
    const kept = this.activeRun === null ? -1 : this.lines.findIndex((line) => line.run === this.activeRun);
    this.active = kept >= 0 ? kept : Math.min(this.active, Math.max(0, this.lines.length - 1));
    setAttribute(this.grid, "aria-rowcount", String(this.lines.length + 1));
    this.draw();
  }

  focus(): void {
    this.grid.focus({ preventScroll: true });
  }

  focusSearch(): void {
    this.search.focus();
    this.search.select();
  }

  private showNote(problem: string | null): void {
    const shown = this.lines.length;
    const of = shown === this.all.length ? "" : ` of ${formatCount(this.all.length)}`;
    const wrong = problem === null ? "" : `. ${problem}: filtered by this text`;
    const none = shown === 0 && this.all.length > 0 ? ". Nothing matches: Escape in the filter shows all" : "";
    setText(this.note, `${formatCount(shown)}${of} ${shown === 1 && !of ? "run" : "runs"}${wrong}${none}`);
  }

  private showHiddenCount(): void {
    const { hidden, showHidden } = this.state;
    const count = hidden.size ? this.all.filter((line) => isHidden(hidden, line)).length : 0;
    this.hiddenButton.hidden = count === 0 && !showHidden;
    setText(this.hiddenButton, `${formatCount(count)} hidden`);
    setAttribute(this.hiddenButton, "aria-pressed", String(showHidden));
    setAttribute(this.hiddenButton, "title", showHidden ? "Leave hidden runs out" : "List hidden runs, too");
  }

  /** Hide a run that is listed, or list a hidden one again. */
  private toggleHidden(line: RunLine | undefined): void {
    if (line) this.hide(line, !isHidden(this.state.hidden, line));
  }

  private showStandings(named: RunLine[]): void {
    const counts = new Map<Standing, number>();
    for (const { standing } of named) counts.set(standing, (counts.get(standing) ?? 0) + 1);
    const chosen = this.state.standing;
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
            type: "button",
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

  private showChips(named: RunLine[]): void {
    const counts = new Map<string, number>();
    for (const line of named) counts.set(line.state, (counts.get(line.state) ?? 0) + 1);
    if (this.state.state && !counts.has(this.state.state)) counts.set(this.state.state, 0);
    const keys = [...counts.keys()].sort((a, b) => wordOf(RUN_STATES, a).rank - wordOf(RUN_STATES, b).rank);
    const key = keys.map((k) => `${k}:${counts.get(k)}`).join() + this.state.state;
    if (this.chips.dataset.key === key) return;
    this.chips.dataset.key = key;
    fill(
      this.chips,
      ...keys.map((name) => {
        const word = wordOf(RUN_STATES, name as RunState);
        const on = this.state.state === name;
        return h(
          "button",
          {
            type: "button",
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

  /** Draw the rows that there is room for by now: all of them, where the list is as high as they are. */
  print(printing: boolean): void {
    this.printing = printing;
    for (const row of this.rows.splice(0)) row.element.remove();
    this.draw();
  }

  private sortBy(key: SortKey): void {
    const { sort } = this.state;
    const descending = sort.key === key ? !sort.descending : startsDescending(key);
    this.change({ sort: { key, descending } }, true);
  }

  private measure(): void {
    const [rem, width] = [remPx(), this.grid.clientWidth];
    const key = `${rem} ${width} ${NARROW.matches}`;
    if (key === this.measured) return;
    this.measured = key;
    const base = (NARROW.matches ? 3.625 : 2.25) * rem;
    const room = width - 2 * (NARROW.matches ? 12 : 16);
    this.tops = topsOf(this.lines.map((line) => base + this.ruler.heightOf(line, room, this.now, this.grid)));
  }

  private schedule(): void {
    if (this.printing) return;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private draw(): void {
    this.measure();
    const { tops } = this;
    this.spacer.style.height = `${tops.at(-1)}px`;
    const slice = visibleRows(this.grid.scrollTop, this.grid.clientHeight, tops);
    while (this.rows.length < slice.end - slice.first) {
      const row = new RunRow(
        (name) => this.open(name),
        (name) => this.toggleHidden(this.lines.find((line) => line.run === name)),
      );
      this.rows.push(row);
      this.body.append(row.element);
    }
    this.rows.forEach((row, i) => {
      // A row keeps its place in the pool while the list scrolls, so that few of them change.
      const pool = this.rows.length;
      const index = slice.first + ((((i - slice.first) % pool) + pool) % pool);
      const line = index < slice.end ? this.lines[index] : undefined;
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
        titleOf(line.run, this.logdir),
        index,
        index === this.active,
        isHidden(this.state.hidden, line),
        this.now,
      );
    });
    setAttribute(this.grid, "aria-activedescendant", this.lines.length ? `run-${this.active}` : null);
  }

  private open(name: string): void {
    this.activeRun = name;
    this.change({ run: name, zoom: null, tags: null }, false);
  }

  private onSearchKey(event: KeyboardEvent): void {
    if (event.key === "Escape") {
      this.search.value = "";
      this.change({ filter: "", state: null, standing: null, age: null }, true);
      this.focus();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      this.focus();
      if (event.key === "Enter" && this.lines.length === 1) this.open((this.lines[0] as RunLine).run);
    }
  }

  private onKey(event: KeyboardEvent): void {
    if (event.target !== this.grid) return;
    const page = this.grid.clientHeight * 0.8;
    const from = this.tops[this.active] ?? 0;
    const moves: Record<string, number> = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: Math.max(1, rowAt(this.tops, from + page) - this.active),
      PageUp: Math.min(-1, rowAt(this.tops, from - page) - this.active),
      Home: -this.lines.length,
      End: this.lines.length,
    };
    const by = moves[event.key];
    if (by !== undefined) {
      event.preventDefault();
      this.moveTo(this.active + by);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      const line = this.lines[this.active];
      if (line) this.open(line.run);
    } else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key === "h") this.toggleHidden(this.lines[this.active]);
    else if (event.key === "c") this.rows.find((row) => row.element.id === `run-${this.active}`)?.copyCommand();
  }

  private moveTo(index: number): void {
    this.active = Math.max(0, Math.min(this.lines.length - 1, index));
    this.activeRun = this.lines[this.active]?.run ?? null;
    const head = this.grid.firstElementChild?.clientHeight ?? 0;
    const top = scrollToRow(this.active, this.grid.scrollTop, this.grid.clientHeight - head, this.tops);
    if (top !== null) this.grid.scrollTop = top;
    this.draw();
  }
}
