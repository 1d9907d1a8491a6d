/** A button that copies a text, also where the page came over plain HTTP and the browser has no clipboard for it. */
import { h, setText } from "./element";

const SHOWN_MS = 2_000;

async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

function copiedBySelection(text: string): boolean {
  const field = h("textarea", { class: "spoken", "aria-hidden": "true", tabindex: -1, readonly: true });
  field.value = text;
  const before = document.activeElement;
  document.body.append(field);
  field.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    field.remove();
    if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  }
}

/** Copy a text, and say on the button whether that was done, until it has its own words again. */
export async function copyFrom(button: HTMLButtonElement, text: string, words = COPY): Promise<void> {
  setText(button, (await copied(text)) ? "Copied" : "Not allowed");
  window.setTimeout(() => setText(button, words), SHOWN_MS);
}

const COPY = "Copy";

export function copyButton(text: () => string, props: Record<string, string | number> = {}): HTMLButtonElement {
  const button = h("button", { class: "copy", "aria-label": "Copy the command", ...props }, COPY);
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    void copyFrom(button, text());
  });
  return button;
}
