/** Pointer, wheel and keys over anything that shares the axis, reported as zooming, panning and pointing. */
import type { View } from "../logic/view";
import { fromPixel } from "../logic/view";

export interface Gestures {
  /** Where the axis is drawn, in pixels from the element's left. */
  geometry(): { left: number; width: number };
  view(): View;
  zoomAt(x: number, factor: number): void;
  panBy(share: number): void;
  select(view: View): void;
  reset(): void;
  point(px: number | null, py: number, event: PointerEvent | null): void;
  /** The stretch that is being dragged over, in pixels; null when it ends. */
  drag(from: number, to: number): void;
  dragEnd(): void;
  click(px: number, py: number): void;
}

const LEAST_DRAG_PX = 5;

/** `plainWheel`: the wheel zooms by itself; elsewhere with Ctrl, Alt or Meta, so that the page can be scrolled. */
export function listen(element: HTMLElement, to: Gestures, plainWheel: boolean): void {
  let from: { x: number; y: number; pan: boolean; last: number } | null = null;
  const local = (event: MouseEvent): { x: number; y: number } => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  element.addEventListener(
    "wheel",
    (event) => {
      const { left, width } = to.geometry();
      const sideways = event.shiftKey
        ? event.deltaY || event.deltaX
        : Math.abs(event.deltaX) > Math.abs(event.deltaY)
          ? event.deltaX
          : 0;
      const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
      if (sideways) {
        event.preventDefault();
        to.panBy((sideways * unit) / Math.max(1, width));
        return;
      }
      if (!plainWheel && !event.ctrlKey && !event.altKey && !event.metaKey) return;
      event.preventDefault();
      const x = fromPixel(local(event).x, to.view(), left, width);
      to.zoomAt(x, Math.exp(Math.max(-120, Math.min(120, event.deltaY * unit)) * 0.003));
    },
    { passive: false },
  );
  element.addEventListener("pointerdown", (event) => {
    if (event.button > 1 || event.pointerType === "touch") return;
    const at = local(event);
    from = { x: at.x, y: at.y, pan: event.shiftKey || event.button === 1, last: at.x };
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    const at = local(event);
    if (!from) {
      to.point(at.x, at.y, event);
      return;
    }
    if (from.pan) {
      to.panBy((from.last - at.x) / Math.max(1, to.geometry().width));
      from.last = at.x;
    } else if (Math.abs(at.x - from.x) >= LEAST_DRAG_PX) {
      to.point(null, 0, null);
      to.drag(from.x, at.x);
    }
  });
  element.addEventListener("pointerup", (event) => {
    const start = from;
    from = null;
    to.dragEnd();
    const at = local(event);
    if (!start || start.pan) {
      if (!start) to.click(at.x, at.y);
      return;
    }
    if (Math.abs(at.x - start.x) < LEAST_DRAG_PX) {
      to.click(at.x, at.y);
      return;
    }
    const { left, width } = to.geometry();
    const a = fromPixel(Math.min(start.x, at.x), to.view(), left, width);
    const b = fromPixel(Math.max(start.x, at.x), to.view(), left, width);
    to.select({ lo: a, hi: b });
  });
  element.addEventListener("pointercancel", () => {
    from = null;
    to.dragEnd();
  });
  element.addEventListener("pointerleave", () => to.point(null, 0, null));
  element.addEventListener("dblclick", () => to.reset());
}

/** What `onKey` does, for people. */
export const KEYS = "Arrows pan, plus and minus zoom, 0 shows all";
/** The keys of a run's timeline, for people. */
export const TIMELINE_KEYS = `${KEYS}. Point and comma go to the next and the previous mark, Shift and an arrow move the read-out.`;

/** Keys of the timeline and of charts. Whether it was one of them. */
export function onKey(event: KeyboardEvent, to: Gestures): boolean {
  const view = to.view();
  const middle = (view.lo + view.hi) / 2;
  switch (event.key) {
    case "ArrowLeft":
      to.panBy(-0.1);
      return true;
    case "ArrowRight":
      to.panBy(0.1);
      return true;
    case "+":
    case "=":
      to.zoomAt(middle, 0.8);
      return true;
    case "-":
      to.zoomAt(middle, 1.25);
      return true;
    case "0":
      to.reset();
      return true;
    default:
      return false;
  }
}
