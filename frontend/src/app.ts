/** The pages, what they show, and the address they are at. */
import { formatCount, formatMoment, formatUtc, itsNow, titleOf } from "./logic/format";
import type { Hidden } from "./logic/hidden";
import { withChange, withRun } from "./logic/hidden";
import { RunStore } from "./logic/run_store";
import type { UrlState, ViewName } from "./logic/url_state";
import { formatState, parseState } from "./logic/url_state";
import { BackendError, client } from "./net/client";
import * as host from "./net/host";
import { Poller } from "./net/poller";
import { report } from "./net/report";
import { onHidden, readHidden, writeHidden } from "./net/stored";
import type { RunLine } from "./types/api";
import { Banner } from "./view/banner";
import { ComparePage } from "./view/compare_page";
import { fill, h, iconButton, setText } from "./view/element";
import { emptyPage } from "./view/empty";
import { Overview } from "./view/overview";
import type { Page } from "./view/page";
import { runPageName } from "./view/page";
import { onPrint } from "./view/print";
import { RunPage } from "./view/run_page";
import { TimelinePage } from "./view/timeline_page";

const VIEW_LABELS: Readonly<Record<ViewName, string>> = { list: "All runs", compare: "Compare", timeline: "Timeline" };
const INTERVAL_MS = 5_000;
/** While the backend reads for the first time. */
const HASTY_MS = 1_000;
const TICK_MS = 1_000;

/** What an address shows: a report has one run. */
const stateOf = (address: string): UrlState => ({ ...parseState(address), ...(report && { run: report.run }) });

export class App {
  readonly #store = new RunStore();
  #state: UrlState = stateOf(host.readAddress());
  readonly #banner = new Banner();
  readonly #main = h("main", { class: "main" });
  readonly #place = h("div", { class: "place" });
  readonly #updated = h("span", { class: "updated" });
  readonly #changing = (patch: Partial<UrlState>, replace: boolean): void => this.#change(patch, replace);
  readonly #overview = new Overview(this.#state, this.#changing, (line, hidden) => this.#hide(line, hidden));
  /** The runs that were hidden in this browser; null before the logdir is known. */
  #stored: Hidden | null = null;
  #page: Page | null = null;
  readonly #poller = new Poller(
    () => this.#load(),
    () => this.#intervalMs,
    (secs) => this.#onWait(secs),
  );
  #failure: BackendError | null = null;
  #printing = false;
  /** How far the backend's clock is ahead of ours, in seconds. */
  #ahead = 0;

  start(root: HTMLElement): void {
    const reload = iconButton("⟳", "Reload", "Reload (r)", () => this.#poller.now());
    const print = h(
      "button",
      { class: "print", title: "Print this page, whole", onclick: () => window.print() },
      "Print",
    );
    root.append(
      h("header", { class: "top" }, this.#place, this.#updated, !report && reload, print),
      this.#banner.element,
      this.#main,
    );
    this.#showDark(host.isDark());
    onPrint(root, (printing) => this.#print(printing));
    host.onDark((dark) => this.#showDark(dark));
    host.onAddress(() => this.#onAddress());
    document.addEventListener("keydown", (event) => this.#onKey(event));
    if (report) {
      void this.#load();
      return;
    }
    window.setInterval(() => {
      if (!host.isHidden()) this.#tick();
    }, TICK_MS);
    // What needs no list does not wait for it.
    if (this.#state.run === null && this.#state.view !== "list") this.#showView(this.#state.view);
    this.#poller.start();
  }

  get #intervalMs(): number {
    const answer = this.#store.latest;
    return answer?.reading || this.#store.size === 0 ? HASTY_MS : INTERVAL_MS;
  }

  get #now(): number {
    return report ? report.at : Date.now() / 1000 + this.#ahead;
  }

  async #load(): Promise<boolean> {
    const since = this.#store.generation;
    try {
      const answer = await client.runs(since);
      this.#ahead = answer.at - Date.now() / 1000;
      const changed = this.#store.apply(answer, since);
      this.#failure = null;
      const page = this.#page;
      this.#show(changed);
      // A page that was made just now has asked already.
      return page === this.#page ? await (page ?? this.#overview).load(changed) : true;
    } catch (error) {
      this.#failed(error);
      return false;
    }
  }

  #failed(error: unknown): void {
    if (!(error instanceof BackendError)) throw error;
    this.#failure = error;
    // A backend that was restarted counts from the beginning.
    if (error.kind === "gone" || error.kind === "starting") this.#store.generation = null;
  }

  #onWait(secs: number): void {
    const again = `Asking again in ${secs} s.`;
    const stand = this.#store.latest ? ` This page shows what was so at ${formatMoment(this.#store.latest.at)}.` : "";
    if (!this.#failure) return;
    this.#tick();
    const { kind, message } = this.#failure;
    if (kind === "starting") this.#banner.show("live", `The Supervisor tab is starting: ${message} ${again}`);
    else if (kind === "gone") this.#banner.show("bad", `${message} Is it still running?${stand} ${again}`);
    else this.#banner.show("bad", `The Supervisor plugin says: ${message} ${again}`);
  }

  #show(changed: Set<string> | null): void {
    const answer = this.#store.latest;
    if (!answer || this.#printing) return;
    if (!report) this.#recall(answer.logdir);
    const { reading, problems } = answer;
    if (reading) {
      const done = `${formatCount(reading.done)} of ${formatCount(reading.total)} runs`;
      this.#banner.show("live", `Reading the logdir for the first time: ${done} so far.`);
    } else if (problems.length) {
      const more = problems.length > 1 ? ` (and ${formatCount(problems.length - 1)} more)` : "";
      this.#banner.show("warn", `Could not be read: ${problems[0]}${more}`);
    } else if (report?.left_out.length) this.#banner.show("live", report.left_out.join(" "));
    else if (!this.#failure) this.#banner.hide();
    if (this.#state.run !== null) this.#showRun(this.#state.run);
    else if (this.#state.view !== "list" && (this.#store.size > 0 || reading)) this.#showView(this.#state.view);
    else this.#showOverview(changed !== null);
    this.#tick();
  }

  #showOverview(fresh: boolean): void {
    this.#page?.close();
    this.#page = null;
    const empty = this.#store.size === 0;
    if (empty) {
      const answer = this.#store.latest;
      if (!answer?.reading && !this.#main.querySelector(".empty")) fill(this.#main, emptyPage(answer?.logdir ?? ""));
    } else if (this.#overview.element.parentNode !== this.#main) {
      fill(this.#main, this.#overview.element);
      if (fresh || document.activeElement === document.body) this.#overview.focus();
    }
    const logdir = h("span", { class: "logdir" }, this.#store.latest?.logdir ?? "");
    const timeline = h(
      "button",
      {
        title: "All runs over the same time",
        onclick: () => this.#change({ view: "timeline" }, false),
      },
      "Timeline",
    );
    if (this.#place.dataset.page !== "list") fill(this.#place, h("h1", {}, "Supervisor"), logdir, !empty && timeline);
    this.#place.dataset.page = empty ? "" : "list";
    if (!empty) this.#overview.update(this.#store.all(), this.#state, this.#now, this.#store.latest?.logdir ?? "");
  }

  #showRun(name: string): void {
    const title = titleOf(name, this.#store.latest?.logdir ?? "");
    const heading = h(
      "h1",
      { class: "run-title", title: name === title ? name : `${title}: the logdir itself`, tabindex: -1 },
      title,
    );
    this.#showPage(runPageName(name), heading, () => new RunPage(name, this.#state, this.#changing));
  }

  #showView(view: Exclude<ViewName, "list">): void {
    const heading = h("h1", { tabindex: -1 }, VIEW_LABELS[view]);
    const make = (): Page =>
      view === "compare" ? new ComparePage(this.#state, this.#changing) : new TimelinePage(this.#state, this.#changing);
    this.#showPage(view, heading, make);
  }

  #showPage(name: string, heading: HTMLElement, make: () => Page): void {
    if (this.#page?.name !== name) {
      this.#page?.close();
      this.#page = make();
      fill(this.#main, this.#page.element);
      // From a run that was opened in a view of many the way goes back there.
      const words = `‹ ${VIEW_LABELS[this.#state.run === null ? "list" : this.#state.view]}`;
      const back = h("button", { class: "back", title: "Back (Escape)", onclick: () => this.#leave() }, words);
      fill(this.#place, !report && back, heading);
      this.#place.dataset.page = name;
      // What was focused is gone with the list: the keyboard goes on from the heading.
      if (document.activeElement === document.body) heading.focus({ preventScroll: true });
      void this.#page.load(null).then((answered) => answered || this.#poller.now());
    }
    this.#page.update(this.#state);
  }

  /** Go up: from a run to the view that it was opened in, from there to the list. */
  #leave(): void {
    const view = this.#state.run === null ? "list" : this.#state.view;
    this.#change({ run: null, view, zoom: null, tags: null }, false);
    if (view === "list") this.#overview.focus();
  }

  #change(patch: Partial<UrlState>, replace: boolean): void {
    this.#state = { ...this.#state, ...patch };
    host.writeAddress(formatState(this.#state), replace);
    this.#show(null);
  }

  /** Hidden is what an address hides, as it was sent, and what was hidden in this browser, in whichever tab. */
  #recall(logdir: string): void {
    if (this.#stored !== null) return;
    onHidden(logdir, (hidden) => this.#onStored(hidden));
    this.#onStored(readHidden(logdir));
  }

  #onStored(after: Hidden): void {
    const hidden = withChange(this.#state.hidden, this.#stored ?? new Map(), after);
    this.#stored = after;
    this.#change({ hidden }, true);
  }

  #hide(line: RunLine, hidden: boolean): void {
    const logdir = this.#store.latest?.logdir ?? "";
    this.#stored = withRun(readHidden(logdir), line, hidden);
    writeHidden(logdir, this.#stored);
    this.#change({ hidden: withRun(this.#state.hidden, line, hidden) }, true);
  }

  #onAddress(): void {
    const text = host.readAddress();
    if (text === formatState(this.#state)) return;
    const state = stateOf(text);
    this.#change({ ...state, hidden: withChange(state.hidden, new Map(), this.#stored ?? new Map()) }, true);
  }

  #showDark(dark: boolean): void {
    document.documentElement.classList.toggle("dark", dark);
    this.#page?.restyle();
  }

  /** Paper is white. */
  #print(printing: boolean): void {
    this.#showDark(!printing && host.isDark());
    this.#printing = printing;
    this.#overview.print(printing);
    this.#page?.print(printing);
  }

  #tick(): void {
    const answer = this.#store.latest;
    if (!answer) return;
    if (report) {
      setText(this.#updated, `as of ${formatUtc(itsNow(report.answers.run, report.at))}, run's clock`);
    } else {
      const age = Math.round(this.#now - answer.at);
      setText(this.#updated, this.#failure || age > 30 ? `as of ${formatMoment(answer.at)}` : "live");
      this.#updated.classList.toggle("stale", this.#failure !== null || age > 30);
    }
    this.#page?.tick(this.#now);
  }

  #onKey(event: KeyboardEvent): void {
    const typing = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
    if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
    if (event.key === "/") {
      event.preventDefault();
      if (this.#page) this.#page.focusSearch();
      else this.#overview.focusSearch();
    } else if (event.key === "Escape" && this.#page) {
      if (!this.#page.escape() && !report) this.#leave();
    } else if (event.key === "r" && !report) this.#poller.now();
  }
}
