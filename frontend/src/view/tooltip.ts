/** What the pointer is on, beside the pointer. The same is in the tables, for who has no pointer. */
import type { Hover } from "../logic/hover";
import { fill, h } from "./element";

export class Tooltip {
  readonly element = h("div", { class: "tooltip", role: "tooltip", hidden: true });

  show(hover: Hover, clientX: number, clientY: number): void {
    const list = h("dl", {});
    for (const [name, value] of hover.rows) list.append(h("dt", {}, name), h("dd", {}, value));
    fill(
      this.element,
      h("strong", {}, hover.title),
      hover.rows.length > 0 && list,
      hover.note ? h("p", {}, hover.note) : null,
    );
    this.element.hidden = false;
    const { offsetWidth: w, offsetHeight: tall } = this.element;
    const x = clientX + 14 + w > window.innerWidth ? Math.max(4, clientX - w - 14) : clientX + 14;
    const y = clientY + 14 + tall > window.innerHeight ? Math.max(4, clientY - tall - 10) : clientY + 14;
    this.element.style.transform = `translate(${x}px, ${y}px)`;
  }

  hide(): void {
    this.element.hidden = true;
  }
}
