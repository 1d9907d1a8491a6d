/** Rows grouped by a text, and what the values of a group have in common: their mean and range. */

export interface Group<Row> {
  /** null: of the rows without a text. */
  name: string | null;
  rows: Row[];
}

/** Groups in the order of their first rows; the one without a text comes last. */
export function groupsOf<Row>(rows: readonly Row[], textOf: (row: Row) => string | null): Group<Row>[] {
  const groups = new Map<string | null, Row[]>();
  for (const row of rows) {
    const text = textOf(row);
    const known = groups.get(text);
    if (known) known.push(row);
    else groups.set(text, [row]);
  }
  const named = [...groups].map(([name, members]) => ({ name, rows: members }));
  return [...named.filter(({ name }) => name !== null), ...named.filter(({ name }) => name === null)];
}

export interface Spread {
  mean: number;
  min: number;
  max: number;
  /** How many values are known. */
  count: number;
}

/** The mean and range of the values that are finite numbers; null where there is none. */
export function spreadOf(values: readonly unknown[]): Spread | null {
  const known = values.filter((value): value is number => Number.isFinite(value));
  if (!known.length) return null;
  return {
    mean: known.reduce((sum, value) => sum + value / known.length, 0),
    min: Math.min(...known),
    max: Math.max(...known),
    count: known.length,
  };
}
