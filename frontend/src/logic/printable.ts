/** Text of others as people can read it: the same as `printable` in supervisor_core/base/log.py. */

/** What moves the cursor, reverses the text after it, or leaves no mark. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{DI}\u2800]/gu;
const NAMED: Record<string, string> = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };

/** Control, bidirectional and invisible characters become escapes; what was made so once stays as it is. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) => NAMED[character] ?? escaped(character.codePointAt(0) as number));
}

/** The same for text whose line breaks mean something. */
export function printableLines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}

function escaped(code: number): string {
  const [letter, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(digits as number, "0")}`;
}
