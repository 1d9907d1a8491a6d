/** Which rows of a long list are to be in the page. */

export interface Slice {
  first: number;
  /** One past the last. */
  end: number;
}

export function visibleRows(top: number, height: number, rowHeight: number, count: number, spare = 6): Slice {
  const first = Math.max(0, Math.floor(top / rowHeight) - spare);
  const end = Math.min(count, Math.ceil((top + height) / rowHeight) + spare);
  return { first: Math.min(first, count), end: Math.max(end, Math.min(first, count)) };
}

/** Where to scroll so that a row is seen whole; null where it is. */
export function scrollToRow(row: number, top: number, height: number, rowHeight: number): number | null {
  const start = row * rowHeight;
  if (start < top) return start;
  if (start + rowHeight > top + height) return start + rowHeight - height;
  return null;
}
