/** Runs that somebody has seen to: out of the list until their state changes, or they are started again. */
import type { RunLine } from "../types/api";

/** How many are remembered, the newest: they are in the address. */
export const MOST_HIDDEN = 100;

/** Run -> what it was like when it was hidden. */
export type Hidden = ReadonlyMap<string, string>;

const markOf = (line: RunLine): string => `${line.state}.${line.restarts}`;

export const isHidden = (hidden: Hidden, line: RunLine): boolean => hidden.get(line.run) === markOf(line);

/** The same with a run hidden, or shown. */
export function withRun(hidden: Hidden, line: RunLine, hide: boolean): Hidden {
  const rest = [...hidden].filter(([run]) => run !== line.run);
  if (hide) rest.push([line.run, markOf(line)]);
  return new Map(rest.slice(-MOST_HIDDEN));
}

/** The same after a change of what the browser remembers: what was hidden, or shown, in another tab. */
export function withChange(hidden: Hidden, before: Hidden, after: Hidden): Hidden {
  const rest = [...hidden].filter(([run]) => after.has(run) || !before.has(run));
  return new Map([...new Map([...rest, ...after])].slice(-MOST_HIDDEN));
}

/** As words, for the address and for the browser's storage. */
export const formatHidden = (hidden: Hidden): string[] => [...hidden].map(([run, mark]) => `${mark}~${run}`);

/** Whatever the words hold: what cannot be read hides nothing. */
export function parseHidden(words: readonly unknown[]): Hidden {
  const found = new Map<string, string>();
  for (const word of words) {
    const at = typeof word === "string" ? word.indexOf("~") : -1;
    if (at > 0) found.set((word as string).slice(at + 1), (word as string).slice(0, at));
  }
  return new Map([...found].slice(-MOST_HIDDEN));
}
