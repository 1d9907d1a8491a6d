/** The page around us: TensorBoard, or nothing. Its address, its dark mode and its reload button. */

interface Storage {
  setString(key: string, value: string, options?: { useLocationReplace?: boolean }): void;
}

interface HostWindow extends Window {
  tensorboard?: { tf_storage?: Storage };
}

const KEY = "p.supervisor.s";

/** TensorBoard's window where we may look into it; our own where we stand alone. */
function hostWindow(): HostWindow {
  try {
    if (window.parent !== window && window.parent.document.body) return window.parent as HostWindow;
  } catch {
    // Another origin, as in a notebook's proxy: then we stand alone.
  }
  return window;
}

const host = hostWindow();

/** TensorBoard's hash is `#name&key=value&...`; our own is `#value`. */
export function readAddress(): string {
  const hash = host.location.hash.replace(/^#/, "");
  if (host === window) return hash;
  for (const part of hash.split("&")) {
    const at = part.indexOf("=");
    if (at > 0 && decode(part.slice(0, at)) === KEY) return decode(part.slice(at + 1));
  }
  return "";
}

/** The whole address: a link to what is shown. */
export const wholeAddress = (): string => host.location.href;

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Write our part of the address. `replace`: the browser's way back does not stop here. */
export function writeAddress(state: string, replace: boolean): void {
  if (readAddress() === state || window.location.protocol === "about:") return; // a frame's own text has no address
  const storage = host === window ? undefined : host.tensorboard?.tf_storage;
  if (storage) storage.setString(KEY, state, { useLocationReplace: replace });
  else if (replace) window.history.replaceState(null, "", ownAddress(state));
  else window.location.hash = state;
}

/** In full: the page has a base, which would otherwise stand for all of the address. */
const ownAddress = (state: string): string => `${window.location.pathname}${window.location.search}#${state}`;

export function onAddress(listener: () => void): void {
  host.addEventListener("hashchange", listener);
  host.addEventListener("popstate", listener);
}

const darkQuery = window.matchMedia("(prefers-color-scheme: dark)");

export const isDark = (): boolean =>
  host === window ? darkQuery.matches : host.document.body.classList.contains("dark-mode");

export function onDark(listener: (dark: boolean) => void): void {
  if (host === window) darkQuery.addEventListener("change", () => listener(isDark()));
  else {
    new MutationObserver(() => listener(isDark())).observe(host.document.body, {
      attributes: true,
      attributeFilter: ["class"],
    });
  }
}

/** Whether anybody can see us: TensorBoard keeps the tabs it hides, with no height. */
export const isHidden = (): boolean => window.innerHeight === 0 || document.hidden;

export function onShown(listener: () => void): void {
  const check = (): void => {
    if (!isHidden()) listener();
  };
  window.addEventListener("resize", check);
  document.addEventListener("visibilitychange", check);
}

/** Called when TensorBoard has reloaded its data: its button, or its own interval. */
export function onReloaded(listener: () => void): void {
  if (host === window) return;
  const channel = new MessageChannel();
  channel.port1.onmessage = (event: MessageEvent<string>): void => {
    let message: { type?: string; id?: number; isReply?: boolean };
    try {
      message = JSON.parse(event.data) as typeof message;
    } catch {
      return;
    }
    if (message.isReply) return;
    channel.port1.postMessage(
      JSON.stringify({ type: message.type, id: message.id, payload: null, error: null, isReply: true }),
    );
    if (message.type === "experimental.DataReloaded") listener();
  };
  window.parent.postMessage("experimental.bootstrap", "*", [channel.port2]);
}
