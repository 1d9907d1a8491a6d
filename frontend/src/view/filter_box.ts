/** Where a regular expression is written. */
import { h } from "./element";

export function searchBox(
  name: string,
  placeholder: string,
  label: string,
  changed: (text: string) => void,
): HTMLInputElement {
  const box = h("input", {
    type: "search",
    class: name,
    placeholder,
    "aria-label": label,
    spellcheck: "false",
    autocomplete: "off",
    oninput: () => changed(box.value),
  });
  return box;
}

/** Filters what there are many of, such as runs; `key`: the one that goes there. */
export const filterBox = (name: string, what: string, key: string, changed: (text: string) => void): HTMLInputElement =>
  searchBox(name, `Filter ${what} (regular expression)${key}`, `Filter ${what} by a regular expression`, changed);

/** Filters runs, in the list and in the timeline. */
export const runFilterBox = (changed: (text: string) => void): HTMLInputElement =>
  filterBox("search", "runs", "   /", changed);
