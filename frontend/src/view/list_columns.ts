/** The chosen columns of the list: which there are, their values, and choosing them. */

import { plural } from "../logic/format";
import { ColumnValues, MOST_COLUMNS, namesOf } from "../logic/list_columns";
import type { UrlState } from "../logic/url_state";
import { BackendError, client, Latest } from "../net/client";
import type { CheckItem } from "./check_list";
import { CheckList } from "./check_list";

export class ListColumns {
  readonly picker = new CheckList(
    "column",
    (key, on) => this.#toggle(key, on),
    () => void this.#loadFields(),
  );
  keys: readonly string[] = [];
  values = new ColumnValues();
  #fields: readonly CheckItem[] = [];
  readonly #latest = new Latest();
  readonly #latestFields = new Latest();

  /** `changed` is called when values have come. */
  constructor(
    private readonly change: (patch: Partial<UrlState>, replace: boolean) => void,
    private readonly changed: () => void,
  ) {}

  update({ columns }: UrlState): void {
    const keys = (columns ?? []).slice(0, MOST_COLUMNS);
    if (keys.join("\n") === this.keys.join("\n")) return;
    this.keys = keys;
    this.values = new ColumnValues();
    this.#showPicker();
    void this.load();
  }

  /** Ask for what may have changed; whether there was an answer. */
  async load(): Promise<boolean> {
    const { keys, values } = this;
    if (!keys.length) return true;
    try {
      const answer = await this.#latest.ask((signal) => client.columns(keys, values.generation, signal));
      if (answer) {
        values.apply(answer);
        this.changed();
      }
      return true;
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      return false;
    }
  }

  async #loadFields(): Promise<void> {
    try {
      const answer = await this.#latestFields.ask((signal) => client.fields(signal));
      if (!answer) return;
      this.#fields = answer.fields.map(({ key, runs }) => {
        const { name, kind } = namesOf(key);
        return { key, name, note: kind ? `${kind}, ${plural(runs, "run")}` : plural(runs, "run") };
      });
      this.#showPicker();
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
    }
  }

  /** Columns that no run has any more can still be left out. */
  #showPicker(): void {
    const known = new Set(this.#fields.map(({ key }) => key));
    const rest = this.keys.filter((key) => !known.has(key));
    this.picker.update(
      [...rest.map((key) => ({ key, name: namesOf(key).name, note: namesOf(key).kind })), ...this.#fields],
      new Set(this.keys),
    );
  }

  #toggle(key: string, on: boolean): void {
    const rest = this.keys.filter((name) => name !== key);
    const columns = on ? [...rest, key] : rest;
    this.change({ columns: columns.length ? columns.slice(0, MOST_COLUMNS) : null }, true);
  }
}
