/** How many lines a text takes: a list that holds only what can be seen has to know before it is there. */

/** Words are put on a line while they fit; one that is longer than a line is broken anywhere, as the page does. */
export function linesOf(text: string, width: number, widthOf: (word: string) => number): number {
  const space = widthOf(" ");
  let lines = 1;
  let used = 0;
  for (const word of text.split(" ")) {
    const size = widthOf(word);
    const before = used > 0 ? used + space : 0;
    if (before + size <= width) used = before + size;
    else {
      if (used > 0) lines++;
      const full = Math.max(0, Math.ceil(size / width) - 1);
      lines += full;
      used = size - full * width;
    }
  }
  return lines;
}
