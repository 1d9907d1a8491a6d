/** The marks of a window, fetched as fine as they are looked at; where each save is a mark already, nothing is. */
import type { Marks } from "../logic/marks";
import { marksOf, refined } from "../logic/marks";
import type { Plot } from "../logic/plot";
import { withMarks } from "../logic/plot";
import type { Stretch } from "../logic/window";
import { columnsOf } from "../logic/window";
import { BackendError, client, Latest } from "../net/client";
import { MARK_COLUMNS } from "./run_data";

export class FineMarks {
  readonly #latest = new Latest();
  #asked = "";
  #found: { marks: Marks; stretch: Stretch } | null = null;

  constructor(
    private readonly run: string,
    private readonly changed: () => void,
  ) {}

  /** The plot with the finest marks there are. */
  on(plot: Plot): Plot {
    const found = this.#found;
    return found && plot.marks.thinned ? withMarks(plot, refined(plot.marks, found.marks, found.stretch)) : plot;
  }

  async fetch(plot: Plot, stretch: Stretch): Promise<void> {
    if (!plot.marks.thinned || stretch.from === null) {
      this.#latest.cancel();
      this.#asked = "";
      if (this.#found) {
        this.#found = null;
        this.changed();
      }
      return;
    }
    const asked = `${stretch.by} ${stretch.from} ${stretch.to} ${JSON.stringify(plot.detail.checkpoints)}`;
    if (asked === this.#asked) return;
    this.#asked = asked;
    const query = { ...stretch, pixels: columnsOf(stretch, MARK_COLUMNS) };
    try {
      const answer = await this.#latest.ask((signal) => client.checkpointMarks(this.run, query, signal));
      if (!answer) return;
      this.#found = { marks: marksOf(answer), stretch };
      this.changed();
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      // Those of the whole run stay.
      this.#asked = "";
    }
  }

  close(): void {
    this.#latest.cancel();
  }
}
