/** What everybody has to know now: the backend is gone, starting, or could not read something. */
import type { Tone } from "../logic/words";
import { h, setText } from "./element";

export class Banner {
  readonly element = h("div", { class: "banner", role: "alert", hidden: true });

  show(tone: Tone, text: string): void {
    this.element.className = `banner ${tone}`;
    this.element.hidden = false;
    setText(this.element, text);
  }

  hide(): void {
    this.element.hidden = true;
  }
}
