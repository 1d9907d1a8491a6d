/** What the signs of the timeline and the charts mean. */
import { OUTCOMES } from "../logic/words";
import { h } from "./element";
import { TIMELINE_KEYS } from "./gestures";

const SIGNS: [string, string, string][] = [
  ["▬", "bar", "a session, its colour and the sign at its beginning say how it ended"],
  ["▨", "red hatching", "recomputed later; at the end of the last bar: at risk, in no checkpoint"],
  ["○", "blank stretch", "silent: the process did not run"],
  ["↻", "dashed line", "a restart: recomputed steps, downtime, whether it was exact"],
  ["↺", "dotted line", "a restart within a session"],
  ["◆", "filled", "a checkpoint on disk; a bar with a number stands for many"],
  ["◇", "hollow", "a deleted checkpoint"],
  ["✕", "red", "a failed save"],
  ["‖", "box", "a hang: no progress for longer than the hang timeout"],
  ["┼", "thin lanes", "service threads, a tick for each call; hatched while overdue or failing"],
  ["━", "thick lanes", "other processes of the cluster; dashed while waiting, hatched in trouble"],
  ["┄", "dashed curve", "points that a restart abandoned; faint behind a curve: the values before smoothing"],
  ["▲", "at the bottom", "a value that is not a number"],
];

export function legend(): HTMLElement {
  const list = h("dl", { class: "legend-list" });
  for (const [sign, name, meaning] of SIGNS) {
    list.append(
      h("dt", {}, h("span", { class: "glyph", "aria-hidden": "true" }, sign), ` ${name}`),
      h("dd", {}, meaning),
    );
  }
  const ends = Object.values(OUTCOMES).map((word) => `${word.glyph} ${word.label}`);
  list.append(h("dt", {}, "how it ended"), h("dd", {}, [...new Set(ends)].join(", ")));
  return h(
    "details",
    { class: "legend" },
    h("summary", {}, "Legend"),
    h("div", { class: "legend-box" }, list, h("p", { class: "muted" }, `Keys of the timeline: ${TIMELINE_KEYS}`)),
  );
}
