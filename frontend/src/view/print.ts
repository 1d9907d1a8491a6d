/** Paper: how wide it is, and what is done to the page before and after it is printed. */

/** Charts are drawn as wide as the smaller of A4 and Letter has room for, in CSS pixels. */
export const PAPER_PX = 700;
/** Dots of a CSS pixel. */
export const PAPER_DOTS = 3;

/** `prepare` is called before, and with false after. What is folded away is open while the page is printed. */
export function onPrint(root: HTMLElement, prepare: (printing: boolean) => void): void {
  let opened: HTMLDetailsElement[] = [];
  window.addEventListener("beforeprint", () => {
    opened = [...root.querySelectorAll<HTMLDetailsElement>("details:not([open], .legend, .tags)")];
    for (const details of opened) details.open = true;
    root.classList.add("printing");
    prepare(true);
  });
  window.addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
    opened = [];
    root.classList.remove("printing");
    prepare(false);
  });
}
