/**
 * Regular expressions in linear time: a pattern is compiled for a machine that follows all of its ways at once, so no
 * text of a filter can freeze the page, as the browser's own engine lets it.
 *
 * Read are literals, `.`, classes, `\d \w \s \b` and their opposites, `^ $`, groups, `|`, `* + ? {m,n}` (lazy or not: only whether there is
 * a match is asked), and lookahead. Letters match in either case. Backreferences and lookbehind are refused.
 */

/** Whether a character, in lower case, belongs. */
type Test = (character: string) => boolean;

type Node =
  | { kind: "test"; test: Test }
  | { kind: "start" | "end" | "boundary" | "inside" }
  | { kind: "ahead"; node: Node; wanted: boolean }
  | { kind: "all" | "any"; nodes: Node[] }
  | { kind: "repeat"; node: Node; least: number; most: number };

/** An instruction: consume a character, stop here with a match, assert something, or go on at two places. */
type Step =
  | { op: "test"; test: Test }
  | { op: "match" }
  | { op: "assert"; holds: (text: string, at: number) => boolean }
  | { op: "split"; to: number[] };

const MOST_STEPS = 4_000;
const SETS: Record<string, Test> = {
  d: (c) => c >= "0" && c <= "9",
  w: (c) => /^\w$/.test(c),
  s: (c) => /^\s$/.test(c),
};
const ESCAPES: Record<string, string> = { n: "\n", t: "\t", r: "\r", f: "\f", v: "\v", "0": "\0" };

export class PatternError extends Error {}

/** Compile a pattern; what it returns says whether it is found anywhere in a text. Throws `PatternError`. */
export function compile(pattern: string): (text: string) => boolean {
  const program = assemble(new Parser(pattern).parse());
  return (text) => runs(program, text.toLowerCase());
}

class Parser {
  private at = 0;
  private readonly text: string[];

  constructor(pattern: string) {
    this.text = [...pattern];
  }

  parse(): Node {
    const node = this.any();
    if (this.at < this.text.length) throw new PatternError("a ) without its (");
    return node;
  }

  private get next(): string | undefined {
    return this.text[this.at];
  }

  private take(text: string): boolean {
    if (this.text.slice(this.at, this.at + text.length).join("") !== text) return false;
    this.at += text.length;
    return true;
  }

  private any(): Node {
    const nodes = [this.all()];
    while (this.take("|")) nodes.push(this.all());
    return nodes.length === 1 ? (nodes[0] as Node) : { kind: "any", nodes };
  }

  private all(): Node {
    const nodes: Node[] = [];
    while (this.next !== undefined && this.next !== "|" && this.next !== ")") nodes.push(this.repeated());
    return { kind: "all", nodes };
  }

  private repeated(): Node {
    const node = this.single();
    const [least, most] = this.quantifier();
    if (least < 0) return node;
    this.take("?");
    if (this.quantifier()[0] >= 0) throw new PatternError("a quantifier of a quantifier");
    return { kind: "repeat", node, least, most };
  }

  private quantifier(): [number, number] {
    if (this.take("*")) return [0, Infinity];
    if (this.take("+")) return [1, Infinity];
    if (this.take("?")) return [0, 1];
    const found = /^\{(\d{1,4})(,(\d{0,4}))?\}/.exec(this.text.slice(this.at, this.at + 12).join(""));
    if (!found) return [-1, -1];
    this.at += found[0].length;
    const least = Number(found[1]);
    const most = found[2] === undefined ? least : found[3] ? Number(found[3]) : Infinity;
    if (most < least) throw new PatternError("numbers out of order in {}");
    return [least, most];
  }

  private single(): Node {
    const character = this.text[this.at++] as string;
    if (character === "(") return this.group();
    if (character === "[") return { kind: "test", test: this.set() };
    if (character === ".") return { kind: "test", test: (c) => c !== "\n" };
    if (character === "^") return { kind: "start" };
    if (character === "$") return { kind: "end" };
    if (character === "\\") return this.escape();
    if ("*+?".includes(character)) throw new PatternError(`nothing to repeat before ${character}`);
    return literal(character);
  }

  private group(): Node {
    const kind = ["?:", "?=", "?!", "?<=", "?<!"].find((text) => this.take(text));
    if (kind?.startsWith("?<")) throw new PatternError("lookbehind is not supported");
    if (!kind && this.next === "?") throw new PatternError("named groups are not supported");
    const inner = this.any();
    const node: Node = kind === "?=" || kind === "?!" ? { kind: "ahead", node: inner, wanted: kind === "?=" } : inner;
    if (!this.take(")")) throw new PatternError("a ( without its )");
    return node;
  }

  private escape(): Node {
    const character = this.text[this.at++];
    if (character === undefined) throw new PatternError("\\ at the end");
    if (character === "b") return { kind: "boundary" };
    if (character === "B") return { kind: "inside" };
    if ((character >= "1" && character <= "9") || character === "k") throw new PatternError("backreferences are not supported");
    return { kind: "test", test: this.escaped(character) };
  }

  private escaped(character: string): Test {
    const set = SETS[character.toLowerCase()];
    if (set && Object.hasOwn(SETS, character.toLowerCase())) return character in SETS ? set : (c) => !set(c);
    const one = this.code(character);
    return (c) => c === one;
  }

  /** The character that an escape stands for, in lower case. */
  private code(character: string): string {
    const length = character === "x" ? 2 : character === "u" ? 4 : 0;
    const digits = this.text.slice(this.at, this.at + length).join("");
    if (length && /^[\da-f]+$/i.test(digits) && digits.length === length) {
      this.at += length;
      return String.fromCharCode(parseInt(digits, 16)).toLowerCase();
    }
    return (ESCAPES[character] ?? character).toLowerCase();
  }

  private set(): Test {
    const negated = this.take("^");
    const tests: Test[] = [];
    while (this.next !== "]") {
      const from = this.member();
      if (typeof from !== "string") tests.push(from);
      else if (this.next === "-" && this.text[this.at + 1] !== "]" && this.text[this.at + 1] !== undefined) {
        this.at++;
        const to = this.member();
        if (typeof to !== "string" || to < from) throw new PatternError("a range out of order in []");
        // Either case of a letter may lie in the range.
        tests.push((c) => (c >= from && c <= to) || (c.toUpperCase() >= from && c.toUpperCase() <= to));
      } else tests.push((c) => c === from.toLowerCase());
    }
    this.at++;
    return (c) => tests.some((test) => test(c)) !== negated;
  }

  private member(): string | Test {
    const character = this.text[this.at++];
    if (character === undefined) throw new PatternError("a [ without its ]");
    if (character !== "\\") return character;
    const escaped = this.text[this.at++];
    if (escaped === undefined) throw new PatternError("\\ at the end");
    return escaped.toLowerCase() in SETS ? this.escaped(escaped) : escaped === "b" ? "\b" : this.code(escaped);
  }
}

function literal(character: string): Node {
  const wanted = [...character.toLowerCase()];
  const nodes = wanted.map((one): Node => ({ kind: "test", test: (c) => c === one }));
  return nodes.length === 1 ? (nodes[0] as Node) : { kind: "all", nodes };
}

function assemble(node: Node): Step[] {
  const program: Step[] = [];
  emit(node, program);
  program.push({ op: "match" });
  return program;
}

function emit(node: Node, program: Step[]): void {
  if (program.length > MOST_STEPS) throw new PatternError("too long");
  switch (node.kind) {
    case "test":
      program.push({ op: "test", test: node.test });
      return;
    case "all":
      for (const child of node.nodes) emit(child, program);
      return;
    case "any":
      emitAny(node.nodes, program);
      return;
    case "repeat":
      emitRepeat(node, program);
      return;
    case "ahead": {
      const inner = assemble(node.node);
      const { wanted } = node;
      program.push({ op: "assert", holds: (text, at) => runs(inner, text, at) === wanted });
      return;
    }
    default: {
      const { kind } = node;
      program.push({ op: "assert", holds: (text, at) => holdsAt(kind, text, at) });
    }
  }
}

function holdsAt(kind: "start" | "end" | "boundary" | "inside", text: string, at: number): boolean {
  if (kind === "start") return at === 0;
  if (kind === "end") return at === text.length;
  const isWord = (i: number): boolean => /^\w$/.test(text.charAt(i));
  return (isWord(at - 1) !== isWord(at)) === (kind === "boundary");
}

function emitAny(nodes: Node[], program: Step[]): void {
  const split = { op: "split" as const, to: [] as number[] };
  program.push(split);
  const ends: { op: "split"; to: number[] }[] = [];
  for (const node of nodes) {
    split.to.push(program.length);
    emit(node, program);
    const end = { op: "split" as const, to: [] as number[] };
    ends.push(end);
    program.push(end);
  }
  for (const end of ends) end.to.push(program.length);
}

function emitRepeat({ node, least, most }: { node: Node; least: number; most: number }, program: Step[]): void {
  for (let i = 0; i < least; i++) emit(node, program);
  if (most === Infinity) {
    const again = { op: "split" as const, to: [program.length + 1] };
    const at = program.length;
    program.push(again);
    emit(node, program);
    program.push({ op: "split", to: [at] });
    again.to.push(program.length);
    return;
  }
  const skips: { op: "split"; to: number[] }[] = [];
  for (let i = least; i < most; i++) {
    const skip = { op: "split" as const, to: [program.length + 1] };
    skips.push(skip);
    program.push(skip);
    emit(node, program);
  }
  for (const skip of skips) skip.to.push(program.length);
}

/** Follow every way at once, beginning anywhere, or only `from` a place; each instruction is at most once at each place. */
function runs(program: Step[], text: string, from?: number): boolean {
  const seen = new Int32Array(program.length).fill(-1);
  let present: number[] = [];
  let later: number[] = [];
  const stack: number[] = [];
  for (let at = from ?? 0; at <= text.length; at++) {
    if (from === undefined || at === from) present.push(0);
    if (!present.length) return false;
    const character = text.charAt(at);
    stack.push(...present.reverse());
    for (let i = stack.pop(); i !== undefined; i = stack.pop()) {
      if (seen[i] === at) continue;
      seen[i] = at;
      const step = program[i] as Step;
      if (step.op === "match") return true;
      if (step.op === "split") stack.push(...step.to);
      else if (step.op === "assert") {
        if (step.holds(text, at)) stack.push(i + 1);
      } else if (at < text.length && step.test(character)) later.push(i + 1);
    }
    present = later;
    later = [];
  }
  return false;
}
