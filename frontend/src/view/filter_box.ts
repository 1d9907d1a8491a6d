/** Where runs are filtered by a regular expression, in the list and in the timeline. */
import { h } from "./element";

export function filterBox(changed: (text: string) => void): HTMLInputElement {
  const box = h("input", {
    type: "search",
    class: "search",
    placeholder: "Filter runs (regular expression)   /",
    "aria-label": "Filter runs by a regular expression",
    spellcheck: "false",
    autocomplete: "off",
  });
  box.addEventListener("input", () => changed(box.value));
  return box;
}
