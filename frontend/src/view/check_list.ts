/** A button that opens a list of checkboxes, with a filter: tags, or columns. */
import { NameFilter } from "../logic/filter";
import { formatCount, plural } from "../logic/format";
import { match } from "../net/matching";
import { fill, h, setText } from "./element";
import { filterBox } from "./filter_box";

export interface CheckItem {
  key: string;
  name: string;
  /** What is said beside its name. */
  note: string;
}

/** More than this are not listed: the filter finds the rest. */
const MOST = 300;

export class CheckList {
  readonly summary: HTMLElement;
  readonly #search: HTMLInputElement;
  readonly #list: HTMLElement;
  readonly #note = h("p", { class: "muted", role: "status" });
  readonly element: HTMLDetailsElement;
  readonly #filter = new NameFilter(match, () => this.#show());
  #items: readonly CheckItem[] = [];
  #chosen: ReadonlySet<string> = new Set();

  /** `what`: what an item is called; `opened`: called when the list is opened. */
  constructor(
    private readonly what: string,
    private readonly toggle: (key: string, on: boolean) => void,
    opened: () => void = () => {},
  ) {
    this.summary = h("summary", {}, `${what[0]?.toUpperCase()}${what.slice(1)}s`);
    this.#search = filterBox("filter", `${what}s`, "", () => this.#show());
    this.#list = h("div", { class: "tag-list", role: "group", "aria-label": this.summary.textContent });
    this.element = h("details", { class: `tags ${what}s` }, this.summary, this.#search, this.#list, this.#note);
    this.element.addEventListener("toggle", () => {
      if (this.element.open) opened();
      this.#show();
    });
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.close()) return;
      event.stopPropagation();
      this.summary.focus();
    });
    document.addEventListener("pointerdown", (event) => {
      if (!event.composedPath().includes(this.element)) this.close();
    });
  }

  update(items: readonly CheckItem[], chosen: ReadonlySet<string>): void {
    this.#items = items;
    this.#chosen = chosen;
    this.#show();
  }

  focus(): void {
    this.element.open = true;
    this.#search.focus();
  }

  /** Close the list; whether it was open. */
  close(): boolean {
    const { open } = this.element;
    this.element.open = false;
    return open;
  }

  #show(): void {
    if (!this.element.open) return;
    const found = this.#filter.select(this.#search.value, [...this.#items], ({ name }) => [name]);
    const focused = document.activeElement instanceof HTMLInputElement ? document.activeElement.value : null;
    fill(this.#list, ...found.slice(0, MOST).map((item) => this.#row(item)));
    if (focused) this.#list.querySelector<HTMLInputElement>(`input[value="${CSS.escape(focused)}"]`)?.focus();
    const more = found.length > MOST ? `, the first ${formatCount(MOST)} are listed` : "";
    const { problem } = this.#filter;
    setText(
      this.#note,
      `${plural(found.length, this.what)}${more}${problem === null ? "" : `. ${problem}: filtered by this text`}`,
    );
  }

  #row({ key, name, note }: CheckItem): HTMLElement {
    const box = h("input", { type: "checkbox", value: key });
    box.checked = this.#chosen.has(key);
    box.addEventListener("change", () => this.toggle(key, box.checked));
    return h(
      "label",
      { title: name },
      box,
      h("span", { class: "tag-name" }, name),
      h("span", { class: "muted num" }, note),
    );
  }
}
