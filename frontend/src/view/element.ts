/**
 * Elements made of plain text and attributes: no markup is ever parsed, so no name can become any; and what a browser
 * obeys in a text, or does not show, is shown as escapes.
 */
import { elementColour } from "../logic/colours";
import { printable, printableLines } from "../logic/printable";

type Child = Node | string | null | undefined | false;
type Props = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

/** Attributes that people read. */
const READ = new Set(["title", "aria-label"]);

/** Elements with listeners: these are replaced whole, because listeners cannot be handed on. */
const listening = new WeakSet<Node>();

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props?: Props,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (element instanceof HTMLButtonElement) element.type = "button";
  if (props) setProps(element, props);
  const shown = tag === "pre" ? printableLines : printable;
  for (const child of children) if (child) element.append(typeof child === "string" ? shown(child) : child);
  return element;
}

/** A button that shows a sign; `name` is what a reader of the page hears. */
export const iconButton = (sign: string, name: string, title: string, onclick: () => void): HTMLButtonElement =>
  h("button", { class: "icon", title, "aria-label": name, onclick }, sign);

export function svg(tag: string, props: Record<string, string | number>): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) element.setAttribute(key, String(value));
  return element;
}

function setProps(element: HTMLElement, props: Props): void {
  for (const [key, value] of Object.entries(props)) {
    if (typeof value === "function") {
      element.addEventListener(key.slice(2), value as EventListener);
      listening.add(element);
    } else if (value === true) element.setAttribute(key, "");
    else if (value != null && value !== false) setAttribute(element, key, String(value));
  }
}

/** Change a text only where it differs: what is selected stays selected, and screen readers stay quiet. */
export function setText(node: Node, text: string): void {
  const shown = printable(text);
  if (node.textContent !== shown) node.textContent = shown;
}

/**
 * Make the children say what the new ones say, and touch only what differs: what is selected stays selected, what has
 * the focus keeps it, and what is scrolled stays where it is. For live content to whose elements no other code has references.
 */
export function refresh(parent: Element, ...children: Child[]): void {
  const fresh = children.filter((child): child is Node | string => Boolean(child));
  const nodes = fresh.map((child) => (typeof child === "string" ? document.createTextNode(printable(child)) : child));
  refreshChildren(parent, nodes);
}

function refreshChildren(parent: Node, fresh: readonly Node[]): void {
  const old = [...parent.childNodes];
  fresh.forEach((node, i) => {
    const before = old[i];
    if (!before) parent.appendChild(node);
    else refreshNode(before, node);
  });
  for (const extra of old.slice(fresh.length)) extra.remove();
}

function refreshNode(old: ChildNode, fresh: Node): void {
  if (old instanceof Text && fresh instanceof Text) refreshText(old, fresh.data);
  else if (
    old instanceof Element &&
    fresh instanceof Element &&
    old.tagName === fresh.tagName &&
    !listening.has(fresh) &&
    !listening.has(old)
  ) {
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) setAttribute(old, name, value);
    refreshChildren(old, [...fresh.childNodes]);
  } else {
    const focused = old === document.activeElement;
    old.replaceWith(fresh);
    if (focused && fresh instanceof HTMLElement) fresh.focus({ preventScroll: true });
  }
}

/** Change only the letters that differ: a selection around them survives. */
function refreshText(node: Text, text: string): void {
  const { data } = node;
  if (data === text) return;
  const most = Math.min(data.length, text.length);
  let same = 0;
  while (same < most && data[same] === text[same]) same++;
  let tail = 0;
  while (tail < most - same && data[data.length - 1 - tail] === text[text.length - 1 - tail]) tail++;
  node.replaceData(same, data.length - same - tail, text.slice(same, text.length - tail));
}

/** Replace all children. */
export function fill(parent: Element, ...children: Child[]): void {
  const shown = children.filter((child): child is Node | string => Boolean(child));
  parent.replaceChildren(...shown.map((child) => (typeof child === "string" ? printable(child) : child)));
}

export function setAttribute(element: Element, name: string, value: string | null): void {
  const shown = value !== null && READ.has(name) ? printable(value) : value;
  if (shown === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== shown) element.setAttribute(name, shown);
}

/** The size of the page's letters, which a reader may have made larger: what holds text grows with it. */
export function remPx(): number {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
}

/** The colour of a compared run. */
export function swatch(colour: number): HTMLElement {
  const element = h("span", { class: "swatch", "aria-hidden": "true" });
  element.style.background = elementColour(colour);
  return element;
}

/** A sign and its word. */
export function pill(word: { glyph: string; label: string; tone: string; meaning: string }, note = ""): HTMLElement {
  const sign = h("span", { class: "glyph", "aria-hidden": "true" }, word.glyph);
  return h("span", { class: `pill ${word.tone}`, title: `${word.meaning}${note}` }, sign, word.label);
}
