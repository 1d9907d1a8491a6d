/** Elements made of plain text and attributes: no markup is ever parsed, so no name can become any. */

type Child = Node | string | null | undefined | false;
type Props = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props?: Props, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (props) setProps(element, props);
  for (const child of children) if (child) element.append(child);
  return element;
}

export function svg(tag: string, props: Record<string, string | number>): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) element.setAttribute(key, String(value));
  return element;
}

function setProps(element: HTMLElement, props: Props): void {
  for (const [key, value] of Object.entries(props)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value as EventListener);
    else if (value === true) element.setAttribute(key, "");
    else if (value != null && value !== false) element.setAttribute(key, String(value));
  }
}

/** Change a text only where it differs: what is selected stays selected, and screen readers stay quiet. */
export function setText(node: Node, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

/** Replace children only where the new ones differ in what they say. */
export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren(...children.filter((child): child is Node | string => Boolean(child)));
}

export function setAttribute(element: Element, name: string, value: string | null): void {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** A sign and its word. */
export function pill(word: { glyph: string; label: string; tone: string; meaning: string }, note = ""): HTMLElement {
  const sign = h("span", { class: "glyph", "aria-hidden": "true" }, word.glyph);
  return h("span", { class: `pill ${word.tone}`, title: `${word.meaning}${note}` }, sign, word.label);
}
