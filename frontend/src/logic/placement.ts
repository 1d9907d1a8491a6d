/** Whose a run is. */

/** Labels as they are filtered by: `team=vision`. */
export const labelWords = (labels: Record<string, string>): string[] =>
  Object.entries(labels).map(([name, value]) => `${name}=${value}`);
