/** What is drawn in the lane of a run: bars for what lasts, signs for moments. Never told apart by colour alone. */
import type { Item } from "../logic/fleet_lanes";
import type { View } from "../logic/view";
import { toPixel } from "../logic/view";
import type { Tone } from "../logic/words";
import type { LaneKind } from "../types/timeline";
import { hatch } from "./canvas";
import type { Theme } from "./theme";

export const LANE_PX = 15;

/** Of each kind its sign, tone and name. Those in a tone of trouble are incidents; those without a sign are bars. */
export const LANE_WORDS: Readonly<Record<LaneKind, readonly [sign: string, tone: Tone, label: string]>> = {
  session: ["", "calm", "running"],
  downtime: ["", "bad", "down"],
  silence: ["", "warn", "process halted"],
  stall: ["", "warn", "stalled"],
  finding: ["", "warn", "something wrong"],
  restart: ["↻", "live", "restarted"],
  saves: ["◇", "warn", "save failed"],
  recovery: ["↺", "warn", "TensorFlow's session lost"],
  loss: ["N", "bad", "loss not finite"],
  completed: ["✓", "good", "completed"],
  stopped: ["■", "calm", "stopped"],
  failed: ["✕", "bad", "failed"],
  lost: ["?", "bad", "lost"],
};

const TALL_PX = LANE_PX - 4;
/** A bar is at least so wide: an outage of seconds is seen in a week. */
const LEAST_PX = 2;

/** Draw the things of a lane whose middle is at a height. Of moments in one place the first of each kind is drawn. */
export function paintLane(
  c: CanvasRenderingContext2D,
  items: Iterable<Item>,
  middle: number,
  view: View,
  left: number,
  width: number,
  theme: Theme,
): void {
  let drawn = "";
  c.textAlign = "center";
  for (const { kind, since, until } of items) {
    const x = toPixel(since, view, left, width);
    const [sign, tone] = LANE_WORDS[kind];
    const colour = theme.tone[tone];
    c.fillStyle = colour;
    if (!sign) {
      const a = Math.max(x, left);
      const w = Math.max(LEAST_PX, Math.min(toPixel(until, view, left, width), left + width) - a);
      const tall = kind === "session" ? 3 : TALL_PX;
      if (tone === "warn") c.fillStyle = theme.background;
      c.fillRect(a, middle - tall / 2, w, tall);
      if (tone === "warn") hatch(c, a, middle - tall / 2, w, tall, colour, kind === "stall" ? 3 : 6);
      continue;
    }
    const place = `${kind}${Math.round(x)}`;
    if (x < left || place === drawn) continue;
    drawn = place;
    // A sign stands out from the bars around it.
    c.strokeStyle = theme.background;
    c.lineWidth = 3;
    c.strokeText(sign, x, middle + 0.5);
    c.fillText(sign, x, middle + 0.5);
  }
}
