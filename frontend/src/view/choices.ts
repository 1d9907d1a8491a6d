/** Buttons of which one is pressed. */
import { h, setAttribute } from "./element";

/** A value, what is written on its button, and its title. */
export type Choice<T> = readonly [T, string, string];

export class Choices<T extends string | null> {
  readonly element: HTMLElement;
  readonly #buttons: [T, HTMLButtonElement][];

  constructor(name: string, choices: readonly Choice<T>[], choose: (value: T) => void) {
    this.#buttons = choices.map(([value, label, title]) => [
      value,
      h("button", { title, value, onclick: () => choose(value) }, label),
    ]);
    const buttons = this.#buttons.map(([, button]) => button);
    this.element = h("div", { class: "segmented", role: "group", "aria-label": name }, ...buttons);
  }

  /** `usable`: which may be chosen now; null for all. */
  show(chosen: T, usable: ((value: T) => boolean) | null = null): void {
    for (const [value, button] of this.#buttons) {
      setAttribute(button, "aria-pressed", String(value === chosen));
      if (usable) button.disabled = !usable(value);
    }
  }
}
