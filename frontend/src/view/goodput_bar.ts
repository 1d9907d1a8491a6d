/** Where the wall time went: one bar whose parts are named, with seconds and percent. */
import { formatDuration, formatShare } from "../logic/format";
import { partsOf } from "../logic/goodput";
import type { Goodput } from "../types/api";
import { h, refresh } from "./element";

export class GoodputBar {
  readonly #bar = h("div", { class: "goodput-bar", "aria-hidden": "true" });
  readonly #list = h("ul", { class: "goodput-parts" });
  readonly #title = h("h2", {});
  readonly element = h(
    "section",
    { class: "goodput card", "aria-label": "Where the time went" },
    this.#title,
    this.#bar,
    this.#list,
  );

  update(goodput: Goodput): void {
    const parts = partsOf(goodput);
    refresh(
      this.#title,
      h("span", { class: "big" }, formatShare(goodput.ratio)),
      ` goodput of ${formatDuration(goodput.wall_secs)}`,
    );
    refresh(
      this.#bar,
      ...parts.map((part) => {
        const words = `${part.label}: ${formatDuration(part.secs)}, ${formatShare(part.share)}`;
        const piece = h(
          "span",
          { class: `part part-${part.key}`, title: words },
          part.share > 0.12 ? part.label : null,
        );
        piece.style.flexGrow = String(part.share);
        return piece;
      }),
    );
    refresh(
      this.#list,
      ...parts.map((part) =>
        h(
          "li",
          { title: part.meaning },
          h("span", { class: `swatch part-${part.key}`, "aria-hidden": "true" }),
          h("span", { class: "part-name" }, part.label),
          h("span", { class: "num" }, formatDuration(part.secs)),
          h("span", { class: "num muted" }, formatShare(part.share)),
        ),
      ),
    );
    // Of another writer's run nothing is known of the time between two records.
    this.element.hidden = parts.length === 0 || goodput.ratio == null;
  }
}
