/** Which tags to draw at first: what engineers look at, few enough to read. */
import type { Tag } from "../types/api";

const WANTED = [
  /(^|[/_. -])(total_?)?loss/i,
  /acc(uracy)?|error|perplexity|reward|return|score|f1|auc|map\b/i,
  /learning_?rate|(^|[/_])lr\b|grad/i,
];
const UNWANTED = /(^|[/_])(global_step|steps?)([/_]sec)?$|^supervisor\//i;

export function defaultTags(tags: readonly Tag[], most = 3): string[] {
  const worth = tags.filter((tag) => tag.points > 1 && !UNWANTED.test(tag.tag));
  const pool = worth.length ? worth : tags;
  const rank = (tag: Tag): number => {
    const found = WANTED.findIndex((pattern) => pattern.test(tag.tag));
    return found < 0 ? WANTED.length : found;
  };
  return pool
    .map((tag, i) => ({ tag, i, rank: rank(tag) }))
    .sort((a, b) => a.rank - b.rank || a.tag.tag.length - b.tag.tag.length || a.i - b.i)
    .slice(0, most)
    .map((item) => item.tag.tag);
}
