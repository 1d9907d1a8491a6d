/** Which runs are compared: chosen in the list, each in a colour of its own. */
import type { Chosen } from "./url_state";
import { MOST_CHOSEN } from "./url_state";

/** The same with these runs chosen, in this order, up to `MOST_CHOSEN`. A new one gets the lowest colour that is free. */
export function withRuns(chosen: readonly Chosen[], runs: Iterable<string>): Chosen[] {
  const after = [...chosen];
  const known = new Set(chosen.map(({ run }) => run));
  const taken = new Set(chosen.map(({ colour }) => colour));
  let colour = 0;
  for (const run of runs) {
    if (after.length >= MOST_CHOSEN) break;
    if (known.has(run)) continue;
    while (taken.has(colour)) colour++;
    known.add(run);
    taken.add(colour);
    after.push({ run, colour });
  }
  return after;
}

/** The same without these runs; the others keep their colours. */
export function withoutRuns(chosen: readonly Chosen[], runs: Iterable<string>): Chosen[] {
  const gone = new Set(runs);
  return chosen.filter(({ run }) => !gone.has(run));
}

/** The names from one to the other, both included, beginning with `from`; only `to` where `from` is not among them. */
export function namesBetween(names: readonly string[], from: string, to: string): string[] {
  const [first, last] = [names.indexOf(from), names.indexOf(to)];
  if (first < 0 || last < 0) return [to];
  return first <= last ? names.slice(first, last + 1) : names.slice(last, first + 1).reverse();
}
