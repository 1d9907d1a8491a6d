/** The backend's columns: a JSON header, then little-endian float64 columns one after the other. */
import type { Columns } from "../types/api";

/** Read columns without copying them. Throws RangeError where the bytes do not hold what the header promises. */
export function decodeColumns<Header>(buffer: ArrayBuffer): Columns<Header> {
  if (buffer.byteLength < 4) throw new RangeError(`columns: ${buffer.byteLength} bytes hold no header`);
  const size = new DataView(buffer).getUint32(0, true);
  const start = 4 + size;
  if (start % 8 !== 0 || start > buffer.byteLength) throw new RangeError(`columns: a header of ${size} bytes`);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size))) as Header & {
    length: number;
    columns: string[];
  };
  const { length, columns: names } = header;
  if (buffer.byteLength < start + names.length * length * 8) {
    throw new RangeError(`columns: ${names.length} of ${length} values do not fit ${buffer.byteLength} bytes`);
  }
  const columns: Record<string, Float64Array> = {};
  for (const [i, name] of names.entries()) columns[name] = new Float64Array(buffer, start + i * length * 8, length);
  return { header, length, columns };
}

/** A column by name; an empty one where it is not there. */
export function column(of: Columns<unknown>, name: string): Float64Array {
  return of.columns[name] ?? new Float64Array(0);
}
