/** Names filtered by a regular expression, as TensorBoard does; by plain text while it is not a valid one. */
import { compile, PatternError } from "./pattern";

export interface Filter {
  test(name: string): boolean;
  /** Why the text is no regular expression; null where it is one. */
  problem: string | null;
}

export function makeFilter(text: string): Filter {
  if (text === "") return { test: () => true, problem: null };
  try {
    return { test: compile(text), problem: null };
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    const wanted = text.toLowerCase();
    return { test: (name) => name.toLowerCase().includes(wanted), problem: error.message };
  }
}
