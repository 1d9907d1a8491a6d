/** Recent rates as a small line: an SVG path, with gaps where nothing was read. */
export function sparkline(values: readonly (number | null)[], width: number, height: number): string {
  const known = values.filter((v): v is number => v !== null && Number.isFinite(v));
  if (known.length < 2) return "";
  const most = Math.max(...known);
  // From 0, so that a drop by half looks like one.
  const top = most > 0 ? most : 1;
  const dx = width / Math.max(1, values.length - 1);
  let path = "";
  let open = false;
  values.forEach((value, i) => {
    if (value === null || !Number.isFinite(value)) {
      open = false;
      return;
    }
    const x = Number((i * dx).toFixed(1));
    const y = Number((height - 1 - (Math.max(0, value) / top) * (height - 2)).toFixed(1));
    path += `${open ? "L" : "M"}${x} ${y}`;
    open = true;
  });
  return path;
}
