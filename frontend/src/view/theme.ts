/** The style's colours, for what is drawn on canvas. */
import type { Tone } from "../logic/words";
import { remPx } from "./element";

export interface Theme {
  text: string;
  muted: string;
  border: string;
  grid: string;
  background: string;
  accent: string;
  tone: Record<Tone, string>;
  /** Lines of tags. */
  line: string;
  wasted: string;
  font: string;
}

export function readTheme(element: Element): Theme {
  const style = getComputedStyle(element);
  const v = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    text: v("text"),
    muted: v("muted"),
    border: v("border"),
    grid: v("grid"),
    background: v("background"),
    accent: v("accent"),
    tone: {
      good: v("good"),
      live: v("live"),
      calm: v("calm"),
      warn: v("warn"),
      bad: v("bad"),
      dim: v("dim"),
    },
    line: v("line"),
    wasted: v("wasted"),
    // The drawing's rows do not grow, so its letters only do as far as they fit.
    font: `${Math.round(11 * Math.min(1.3, remPx() / 16))}px ${style.fontFamily}`,
  };
}
