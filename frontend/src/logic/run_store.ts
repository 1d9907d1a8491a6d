/** The overview's lines, brought up to date by answers that hold only what changed. */
import type { RunLine, RunsAnswer } from "../types/api";

export class RunStore {
  readonly #lines = new Map<string, RunLine>();
  generation: number | null = null;
  latest: RunsAnswer | null = null;

  /** Take an answer in; the names of the runs that it changed. One that is older than what is known is dropped. */
  apply(answer: RunsAnswer, since: number | null): Set<string> {
    if (since !== this.generation) return new Set();
    const changed = new Set(answer.removed);
    if (answer.full) {
      for (const name of this.#lines.keys()) changed.add(name);
      this.#lines.clear();
    }
    for (const name of answer.removed) this.#lines.delete(name);
    for (const line of answer.runs) {
      this.#lines.set(line.run, line);
      changed.add(line.run);
    }
    this.generation = answer.generation;
    this.latest = answer;
    return changed;
  }

  get(name: string): RunLine | undefined {
    return this.#lines.get(name);
  }

  get size(): number {
    return this.#lines.size;
  }

  all(): RunLine[] {
    return [...this.#lines.values()];
  }
}
