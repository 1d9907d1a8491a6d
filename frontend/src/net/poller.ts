/** Polls: at an interval, on request, more slowly while there is no answer, never while the page is hidden. */
import { isHidden, onReloaded, onShown } from "./host";

const SLOWEST_MS = 30_000;

export class Poller {
  #timer: number | undefined;
  #failures = 0;
  #busy = false;
  #again = false;
  #missed = false;

  /** `ask` resolves to whether there was an answer. */
  constructor(
    private readonly ask: () => Promise<boolean>,
    private readonly intervalMs: () => number,
    /** Called before a wait after a failure. */
    private readonly onWait: (secs: number) => void,
  ) {}

  start(): void {
    onReloaded(() => this.now());
    onShown(() => {
      if (this.#missed) this.now();
    });
    this.now();
  }

  /** Ask at once, or as soon as the present question is answered. */
  now(): void {
    window.clearTimeout(this.#timer);
    if (this.#busy) {
      this.#again = true;
      return;
    }
    if (isHidden()) {
      this.#missed = true;
      return;
    }
    this.#missed = false;
    void this.#round();
  }

  async #round(): Promise<void> {
    this.#busy = true;
    const answered = await this.ask();
    this.#busy = false;
    this.#failures = answered ? 0 : this.#failures + 1;
    const wait = answered ? this.intervalMs() : Math.min(SLOWEST_MS, 1000 * 2 ** (this.#failures - 1));
    if (!answered) this.onWait(wait / 1000);
    if (this.#again) {
      this.#again = false;
      this.now();
      return;
    }
    this.#timer = window.setTimeout(() => this.now(), wait);
  }
}
