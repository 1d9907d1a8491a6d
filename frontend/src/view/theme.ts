/** The style's colours, for what is drawn on canvas. */
import { remPx } from "./element";

export interface Theme {
  text: string;
  muted: string;
  border: string;
  grid: string;
  background: string;
  accent: string;
  /** By tone. */
  tone: Record<string, string>;
  /** Lines of tags. */
  line: string;
  wasted: string;
  font: string;
}

export function readTheme(element: Element): Theme {
  const style = getComputedStyle(element);
  const v = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const tones = ["good", "live", "calm", "warn", "bad", "dim"];
  return {
    text: v("text"),
    muted: v("muted"),
    border: v("border"),
    grid: v("grid"),
    background: v("background"),
    accent: v("accent"),
    tone: Object.fromEntries(tones.map((tone) => [tone, v(tone)])),
    line: v("line"),
    wasted: v("wasted"),
    // The drawing's rows do not grow, so its letters only do as far as they fit.
    font: `${Math.round(11 * Math.min(1.3, remPx() / 16))}px ${style.fontFamily}`,
  };
}
