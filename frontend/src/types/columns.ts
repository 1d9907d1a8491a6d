/** What the routes `fields` and `columns` answer, as tb_plugin/http_api.md has it. */

/** A value of a column or of a configuration. */
export type Setting = string | number | boolean;

/** Columns that the list may have. */
export interface FieldsAnswer {
  v: number;
  generation: number;
  /** `runs`: how many have it. */
  fields: { key: string; runs: number }[];
  left_out: number;
}

/** Values of columns, by column and run. */
export interface ColumnsAnswer {
  v: number;
  at: number;
  generation: number;
  /** Whether these are all; else only those of the runs that changed, null where they have none now. */
  full: boolean;
  /** A number that is not finite is the text "nan", "inf" or "-inf". */
  columns: Record<string, Record<string, Setting | null>>;
}
