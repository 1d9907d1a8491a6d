/**
 * Names filtered by a regular expression, as TensorBoard does; by plain text while it is not a valid one, or takes too long.
 *
 * The browser's own engine may need longer than anybody waits. So an expression is matched elsewhere (`net/matching.ts`).
 */

/** Says of each name whether an expression is found in it. Rejects if that is stopped, or takes too long. */
export type Match = (expression: string, names: string[], stopped: AbortSignal) => Promise<boolean[]>;

const SPECIAL = /[\\^$.*+?()[\]{}|]/;

export class NameFilter {
  /** Why names are filtered by plain text; null where they are not. */
  problem: string | null = null;
  #text = "";
  #isRegular = false;
  /** What the last answer said. It stays while the next expression is matched. */
  #found = new Map<string, boolean>();
  #answered = "";
  #question: AbortController | null = null;

  /** `changed` is called when names are known that were not at the last `select`. */
  constructor(
    private readonly match: Match,
    private readonly changed: () => void,
  ) {}

  /** Whether an answer has yet to come. */
  get isAsking(): boolean {
    return this.#question !== null;
  }

  /** What a text selects: items with a name that it is found in. A name that is not known yet is selected. */
  select<Item>(text: string, items: Item[], namesOf: (item: Item) => string[]): Item[] {
    if (text !== this.#text) this.#begin(text);
    if (!this.#isRegular) {
      const wanted = text.toLowerCase();
      return items.filter((item) => namesOf(item).some((name) => name.toLowerCase().includes(wanted)));
    }
    const names = [...new Set(items.flatMap(namesOf))];
    const unknown = this.#answered === text ? names.filter((name) => !this.#found.has(name)) : names;
    if (unknown.length && !this.#question) void this.#ask(text, unknown);
    return items.filter((item) => namesOf(item).some((name) => this.#found.get(name) ?? true));
  }

  #begin(text: string): void {
    this.#question?.abort();
    this.#question = null;
    this.#text = text;
    this.problem = null;
    this.#isRegular = SPECIAL.test(text);
    try {
      new RegExp(text);
    } catch {
      this.#isPlain("Not a regular expression");
    }
  }

  #isPlain(problem: string): void {
    this.#isRegular = false;
    this.problem = problem;
  }

  async #ask(text: string, names: string[]): Promise<void> {
    const question = new AbortController();
    this.#question = question;
    try {
      const answers = await this.match(text, names, question.signal);
      if (question.signal.aborted) return;
      if (this.#answered !== text) this.#found = new Map();
      this.#answered = text;
      for (const [i, name] of names.entries()) this.#found.set(name, answers[i] ?? false);
    } catch {
      if (question.signal.aborted) return;
      this.#isPlain("The regular expression cannot be used, or takes too long");
    }
    this.#question = null;
    this.changed();
  }
}
