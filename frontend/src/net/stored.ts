/** What this browser remembers of a logdir: the runs that were hidden. */
import type { Hidden } from "../logic/hidden";
import { formatHidden, parseHidden } from "../logic/hidden";

const keyOf = (logdir: string): string => `supervisor.hidden ${logdir}`;

/** Nothing where the browser keeps nothing, or something else. */
export function readHidden(logdir: string): Hidden {
  try {
    const words: unknown = JSON.parse(window.localStorage.getItem(keyOf(logdir)) ?? "[]");
    return parseHidden(Array.isArray(words) ? words : []);
  } catch {
    return new Map();
  }
}

/** Called when another tab of this browser has hidden, or shown, a run of the logdir. */
export function onHidden(logdir: string, listener: (hidden: Hidden) => void): void {
  window.addEventListener("storage", (event) => {
    // Without a key everything was cleared.
    if (event.key === keyOf(logdir) || event.key === null) listener(readHidden(logdir));
  });
}

/** Where the browser keeps nothing (private windows, full storage) the address alone has it. */
export function writeHidden(logdir: string, hidden: Hidden): void {
  try {
    if (hidden.size) window.localStorage.setItem(keyOf(logdir), JSON.stringify(formatHidden(hidden)));
    else window.localStorage.removeItem(keyOf(logdir));
  } catch {
    // As said.
  }
}
