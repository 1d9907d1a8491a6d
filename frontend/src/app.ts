/** The pages, what they show, and the address they are at. */
import { formatCount, formatMoment, formatUtc, itsNow, titleOf } from "./logic/format";
import type { Hidden } from "./logic/hidden";
import { withChange, withRun } from "./logic/hidden";
import { RunStore } from "./logic/run_store";
import type { UrlState } from "./logic/url_state";
import { formatState, parseState } from "./logic/url_state";
import { BackendError, client } from "./net/client";
import * as host from "./net/host";
import { Poller } from "./net/poller";
import { report } from "./net/report";
import { onHidden, readHidden, writeHidden } from "./net/stored";
import type { RunLine } from "./types/api";
import { Banner } from "./view/banner";
import { fill, h, setText } from "./view/element";
import { emptyPage } from "./view/empty";
import { Overview } from "./view/overview";
import { onPrint } from "./view/print";
import { RunPage } from "./view/run_page";

const INTERVAL_MS = 5_000;
/** While the backend reads for the first time. */
const HASTY_MS = 1_000;
const TICK_MS = 1_000;

/** What an address shows: a report has one run. */
const stateOf = (address: string): UrlState => ({ ...parseState(address), ...(report && { run: report.run }) });

export class App {
  private readonly store = new RunStore();
  private state: UrlState = stateOf(host.readAddress());
  private readonly banner = new Banner();
  private readonly main = h("main", { class: "main" });
  private readonly place = h("div", { class: "place" });
  private readonly updated = h("span", { class: "updated" });
  private readonly overview = new Overview(
    this.state,
    (patch, replace) => this.change(patch, replace),
    (line, hidden) => this.hide(line, hidden),
  );
  /** The runs that were hidden in this browser; null before the logdir is known. */
  private stored: Hidden | null = null;
  private page: RunPage | null = null;
  private readonly poller = new Poller(
    () => this.load(),
    () => this.intervalMs,
    (secs) => this.onWait(secs),
  );
  private failure: BackendError | null = null;
  private printing = false;
  /** How far the backend's clock is ahead of ours, in seconds. */
  private ahead = 0;

  start(root: HTMLElement): void {
    const reload = h(
      "button",
      { type: "button", class: "icon", title: "Reload (r)", "aria-label": "Reload", onclick: () => this.poller.now() },
      "⟳",
    );
    const print = h(
      "button",
      { type: "button", class: "print", title: "Print this page, whole", onclick: () => window.print() },
      "Print",
    );
    root.append(
      h("header", { class: "top" }, this.place, this.updated, !report && reload, print),
      this.banner.element,
      this.main,
    );
    this.showDark(host.isDark());
    onPrint(root, (printing) => this.print(printing));
    host.onDark((dark) => this.showDark(dark));
    host.onAddress(() => this.onAddress());
    document.addEventListener("keydown", (event) => this.onKey(event));
    if (report) {
      void this.load();
      return;
    }
    window.setInterval(() => {
      if (!host.isHidden()) this.tick();
    }, TICK_MS);
    this.poller.start();
  }

  private get intervalMs(): number {
    const answer = this.store.latest;
    return answer?.reading || this.store.size === 0 ? HASTY_MS : INTERVAL_MS;
  }

  private get now(): number {
    return report ? report.at : Date.now() / 1000 + this.ahead;
  }

  private async load(): Promise<boolean> {
    const since = this.store.generation;
    try {
      const answer = await client.runs(since);
      this.ahead = answer.at - Date.now() / 1000;
      const changed = this.store.apply(answer, since);
      this.failure = null;
      this.show(changed);
      return this.page ? await this.page.load(changed) : true;
    } catch (error) {
      this.failed(error);
      return false;
    }
  }

  private failed(error: unknown): void {
    if (!(error instanceof BackendError)) throw error;
    this.failure = error;
    // A backend that was restarted counts from the beginning.
    if (error.kind === "gone" || error.kind === "starting") this.store.generation = null;
  }

  private onWait(secs: number): void {
    const again = `Asking again in ${secs} s.`;
    const stand = this.store.latest ? ` This page shows what was so at ${formatMoment(this.store.latest.at)}.` : "";
    if (!this.failure) return;
    this.tick();
    const { kind, message } = this.failure;
    if (kind === "starting") this.banner.show("calm", `The Supervisor tab is starting: ${message} ${again}`);
    else if (kind === "gone") this.banner.show("bad", `${message} Is it still running?${stand} ${again}`);
    else this.banner.show("bad", `The Supervisor plugin says: ${message} ${again}`);
  }

  private show(changed: Set<string> | null): void {
    const answer = this.store.latest;
    if (!answer || this.printing) return;
    if (!report) this.recall(answer.logdir);
    const { reading, problems } = answer;
    if (reading) {
      const done = `${formatCount(reading.done)} of ${formatCount(reading.total)} runs`;
      this.banner.show("calm", `Reading the logdir for the first time: ${done} so far.`);
    } else if (problems.length) {
      const more = problems.length > 1 ? ` (and ${formatCount(problems.length - 1)} more)` : "";
      this.banner.show("warn", `Could not be read: ${problems[0]}${more}`);
    } else if (report?.left_out.length) this.banner.show("calm", report.left_out.join(" "));
    else if (!this.failure) this.banner.hide();
    if (this.state.run !== null) this.showRun(this.state.run);
    else this.showOverview(changed !== null);
    this.tick();
  }

  private showOverview(fresh: boolean): void {
    this.page?.close();
    this.page = null;
    const empty = this.store.size === 0;
    if (empty) {
      const answer = this.store.latest;
      if (!answer?.reading && !this.main.querySelector(".empty")) fill(this.main, emptyPage(answer?.logdir ?? ""));
    } else if (this.overview.element.parentNode !== this.main) {
      fill(this.main, this.overview.element);
      if (fresh || document.activeElement === document.body) this.overview.focus();
    }
    fill(this.place, h("h1", {}, "Supervisor"), h("span", { class: "logdir" }, this.store.latest?.logdir ?? ""));
    if (!empty) this.overview.update(this.store.all(), this.state, this.now, this.store.latest?.logdir ?? "");
  }

  private showRun(name: string): void {
    if (this.page?.run !== name) {
      this.page?.close();
      this.page = new RunPage(name, this.state, (patch, replace) => this.change(patch, replace));
      fill(this.main, this.page.element);
      const back = h(
        "button",
        { type: "button", class: "back", title: "All runs (Escape)", onclick: () => this.leave() },
        "‹ All runs",
      );
      const title = titleOf(name, this.store.latest?.logdir ?? "");
      const heading = h(
        "h1",
        { class: "run-title", title: name === title ? name : `${title}: the logdir itself`, tabindex: -1 },
        title,
      );
      fill(this.place, !report && back, heading);
      // What was focused is gone with the list: the keyboard goes on from the run's name.
      if (document.activeElement === document.body) heading.focus({ preventScroll: true });
      void this.page.load(null).then((answered) => answered || this.poller.now());
    }
    this.page.update(this.state);
  }

  private leave(): void {
    this.change({ run: null, zoom: null, tags: null }, false);
    this.overview.focus();
  }

  private change(patch: Partial<UrlState>, replace: boolean): void {
    this.state = { ...this.state, ...patch };
    host.writeAddress(formatState(this.state), replace);
    this.show(null);
  }

  /** Hidden is what an address hides, as it was sent, and what was hidden in this browser, in whichever tab. */
  private recall(logdir: string): void {
    if (this.stored !== null) return;
    onHidden(logdir, (hidden) => this.onStored(hidden));
    this.onStored(readHidden(logdir));
  }

  private onStored(after: Hidden): void {
    const hidden = withChange(this.state.hidden, this.stored ?? new Map(), after);
    this.stored = after;
    this.change({ hidden }, true);
  }

  private hide(line: RunLine, hidden: boolean): void {
    const logdir = this.store.latest?.logdir ?? "";
    this.stored = withRun(readHidden(logdir), line, hidden);
    writeHidden(logdir, this.stored);
    this.change({ hidden: withRun(this.state.hidden, line, hidden) }, true);
  }

  private onAddress(): void {
    const text = host.readAddress();
    if (text === formatState(this.state)) return;
    const state = stateOf(text);
    this.change({ ...state, hidden: withChange(state.hidden, new Map(), this.stored ?? new Map()) }, true);
  }

  private showDark(dark: boolean): void {
    document.documentElement.classList.toggle("dark", dark);
    this.page?.restyle();
  }

  /** Paper is white. */
  private print(printing: boolean): void {
    this.showDark(!printing && host.isDark());
    this.printing = printing;
    this.overview.print(printing);
    this.page?.print(printing);
  }

  private tick(): void {
    const answer = this.store.latest;
    if (!answer) return;
    if (report) {
      setText(this.updated, `as of ${formatUtc(itsNow(report.answers.run, report.at))}, run's clock`);
    } else {
      const age = Math.round(this.now - answer.at);
      setText(this.updated, this.failure || age > 30 ? `as of ${formatMoment(answer.at)}` : "live");
      this.updated.classList.toggle("stale", this.failure !== null || age > 30);
    }
    this.page?.tick(this.now);
  }

  private onKey(event: KeyboardEvent): void {
    const typing = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
    if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
    if (event.key === "/") {
      event.preventDefault();
      if (this.state.run === null) this.overview.focusSearch();
      else this.page?.focusSearch();
    } else if (event.key === "Escape" && this.state.run !== null) {
      if (!this.page?.escape() && !report) this.leave();
    } else if (event.key === "r" && !report) this.poller.now();
  }
}
