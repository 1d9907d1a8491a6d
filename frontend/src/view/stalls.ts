/** Stalls with the Python stacks that were taken when they were noticed. */
import { formatCount, formatDuration, formatMoment } from "../logic/format";
import { innermost, ownFrame, secondLook, stacksInOrder, stalledThread } from "../logic/stalls";
import type { Stall } from "../types/api";
import { h, refresh } from "./element";

export class StallList {
  readonly element = h("section", { class: "stalls", "aria-label": "Stalls", hidden: true });
  #shown = "";

  /** Whether the newest session, `session`, hangs now: the stacks of that stall are open then. */
  update(stalls: readonly Stall[], session: string | undefined): boolean {
    const now = stalls.findLastIndex((stall) => !stall.service && stall.until == null && stall.session === session);
    const key = stalls
      .map(
        (stall) =>
          `${stall.since} ${stall.until} ${Math.round(stall.secs)} ${stall.same_frames} ${stall.activity} ${stall.blocked_since} ${stall.verdict}`,
      )
      .join();
    if (key === this.#shown) return now >= 0;
    this.#shown = key;
    const open = this.#items.map((item) => item.open);
    refresh(this.element, h("h2", {}, "Stalls"), ...stalls.map((stall, i) => this.#item(stall, open[i] ?? i === now)));
    this.element.hidden = stalls.length === 0;
    return now >= 0;
  }

  get #items(): HTMLDetailsElement[] {
    return [...this.element.querySelectorAll("details")];
  }

  /** Open one and bring it into sight. */
  reveal(index: number): void {
    const item = this.#items[index];
    if (!item) return;
    item.open = true;
    item.scrollIntoView({ block: "nearest" });
    item.querySelector("summary")?.focus({ preventScroll: true });
  }

  #item(stall: Stall, open: boolean): HTMLDetailsElement {
    const until = stall.until == null ? "and still lasts" : `until ${formatMoment(stall.until)}`;
    const step = stall.step == null ? "" : `, at step ${formatCount(stall.step)}`;
    const line = innermost(stall);
    const thread = stalledThread(stall);
    const where = stall.verdict ? `: ${stall.verdict}` : line ? `, ${thread} in ${line}` : "";
    const how = stall.verdict ? null : secondLook(stall);
    const summary = h(
      "summary",
      {},
      h(
        "span",
        { class: "pill warn" },
        h("span", { class: "glyph", "aria-hidden": "true" }, "‖"),
        formatDuration(stall.secs),
      ),
      ` ${formatMoment(stall.since)} ${until}, ${stall.service ? `in one tick of the service ${stall.service}` : `while ${stall.phase}`}${step}${where}${how ? ` (${how})` : ""}`,
    );
    const stacks = stacksInOrder(stall).map(([name, frames]) => {
      const own = ownFrame(frames);
      const line = (text: string, index: number): HTMLElement | string => (index === own ? h("mark", {}, text) : text);
      const parts = frames.flatMap((text, index) => (index ? ["\n", line(text, index)] : [line(text, index)]));
      return h(
        "div",
        { class: "stack" },
        h("h3", {}, name),
        h("pre", { tabindex: 0, "aria-label": `Stack of ${name}` }, ...parts),
      );
    });
    const none = stacks.length ? null : h("p", { class: "muted" }, "No stacks were taken.");
    return h("details", { class: "card", open }, summary, ...stacks, none);
  }
}
