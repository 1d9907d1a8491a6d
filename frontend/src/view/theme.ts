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
  const colours = <Name extends string>(...names: Name[]): Record<Name, string> =>
    Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])) as Record<Name, string>;
  return {
    ...colours("text", "muted", "border", "grid", "background", "accent", "line", "wasted"),
    tone: colours("good", "live", "calm", "warn", "bad", "dim"),
    // The drawing's rows do not grow, so its letters only do as far as they fit.
    font: `${Math.round(11 * Math.min(1.3, remPx() / 16))}px ${style.fontFamily}`,
  };
}
