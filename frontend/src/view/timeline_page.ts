/** All runs over the same time: a lane each, and above them what happened, as sentences. */
import { NameFilter } from "../logic/filter";
import type { FleetLane, FleetRow } from "../logic/fleet_lanes";
import { fleetRowsOf, lanesOf } from "../logic/fleet_lanes";
import type { Period } from "../logic/period";
import { PERIODS } from "../logic/period";
import type { UrlState } from "../logic/url_state";
import type { View } from "../logic/view";
import { BackendError, client, Latest } from "../net/client";
import { match } from "../net/matching";
import type { IncidentsAnswer, TimelineHeader } from "../types/timeline";
import type { Choice } from "./choices";
import { Choices } from "./choices";
import { fill, h, refresh, setAttribute } from "./element";
import { runFilterBox } from "./filter_box";
import { Happenings } from "./happenings";
import { LaneChart } from "./lane_chart";
import type { Page } from "./page";
import { zoomButtons } from "./zoom";

/** Of more runs than these, what is shown may be this old. */
const MANY_RUNS = 1_000;
const LEAST_AGE_MS = 15_000;
/** How much of a run's page is around what it is opened at, in seconds. */
const AROUND_SECS = 600;

const PERIOD_CHOICES = (Object.keys(PERIODS) as Period[]).map(
  (period): Choice<Period> => [period, PERIODS[period][1], PERIODS[period][2]],
);

export class TimelinePage implements Page {
  readonly name = "timeline";
  readonly #latest = new Latest();
  readonly #latestSentences = new Latest();
  readonly #periods = new Choices("Period", PERIOD_CHOICES, (period) =>
    this.change({ period, zoom: null, stretch: null }, true),
  );
  readonly #search = runFilterBox((filter) => this.change({ filter }, true));
  readonly #lanesBy = h("select", {
    "aria-label": "Group runs by",
    onchange: () => this.change({ lanesBy: this.#lanesBy.value }, true),
  });
  readonly #filter = new NameFilter(match, () => this.#show());
  readonly #happenings = new Happenings(
    ({ at, runs }) => at !== null && this.#chart.reveal(at, runs[0]),
    () => this.change({ stretch: null, zoom: null }, true),
  );
  readonly #chart = new LaneChart({
    settled: (zoom) => this.change({ zoom }, true),
    select: (stretch) => this.change({ stretch }, true),
    open: (lane, at) => this.#open(lane, at),
    fold: (key) => this.#fold(key),
  });
  readonly #body = [
    h(
      "div",
      { class: "toolbar" },
      this.#periods.element,
      this.#lanesBy,
      this.#search,
      ...zoomButtons((factor) => this.#chart.zoom.by(factor)),
    ),
    this.#happenings.element,
    this.#chart.element,
  ];
  readonly element = h("article", { class: "overview", "aria-label": "Timeline", "aria-busy": "true" });
  #header: TimelineHeader | null = null;
  #lanes: FleetLane[] = [];
  #rows: readonly FleetRow[] = [];
  #rowsKey = "";
  #incidents: IncidentsAnswer | null = null;
  /** The stretch that the sentences are of, or else the period in words. */
  #about: [View | null, string | null] = [null, null];
  /** What was asked for last: other words in the address ask again. */
  #asked = "";
  #askedSentences = "";
  #askedAt = 0;
  #loading: Promise<boolean> | null = null;
  /** Whether something has changed since what is shown, or on its way, was asked for. */
  #isStale = false;
  #now = Date.now() / 1000;

  constructor(
    private state: UrlState,
    private readonly change: (patch: Partial<UrlState>, replace: boolean) => void,
  ) {
    this.#search.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" && event.key !== "Enter") return;
      this.#chart.focus();
      if (event.key === "Escape") this.change({ filter: "" }, true);
    });
  }

  update(state: UrlState): void {
    this.state = state;
    if (this.#asked && this.#asked !== this.#question) void this.load(null);
    else this.#askSentences(false);
    this.#show();
  }

  get #question(): string {
    return `${this.state.period} ${this.state.lanesBy}`;
  }

  /** When the period begins; null for all. */
  get #from(): number | null {
    const [secs] = PERIODS[this.state.period];
    return secs && this.#now - secs;
  }

  load(changed: Set<string> | null): Promise<boolean> {
    this.#isStale ||= changed === null || changed.size > 0;
    // A long answer on its way is not called off: what has changed since is asked for the next time.
    if (changed && this.#loading) return this.#loading;
    const isFresh = this.#lanes.length > MANY_RUNS && performance.now() - this.#askedAt < LEAST_AGE_MS;
    if (changed && this.#header && (!this.#isStale || isFresh)) return Promise.resolve(true);
    this.#isStale = false;
    const own = this.#ask().finally(() => {
      if (this.#loading === own) this.#loading = null;
    });
    this.#loading = own;
    return own;
  }

  async #ask(): Promise<boolean> {
    this.#asked = this.#question;
    this.#askedAt = performance.now();
    this.#askSentences(true);
    try {
      const { lanesBy } = this.state;
      const answer = await this.#latest.ask((signal) => client.timeline(this.#from, lanesBy, signal));
      if (!answer) return true;
      if (!this.#header) fill(this.element, ...this.#body);
      setAttribute(this.element, "aria-busy", null);
      this.#header = answer.header;
      this.#lanes = lanesOf(answer);
      this.#rowsKey = "";
      this.#show();
      return true;
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      this.#asked = "";
      this.#isStale = true;
      return false;
    }
  }

  /** What the sentences are of: what was chosen, else what is shown; null for the whole period. */
  get #stretch(): View | null {
    return this.state.stretch ?? this.state.zoom;
  }

  /** Ask what happened, unless that is known. */
  #askSentences(again: boolean): void {
    const stretch = this.#stretch,
      { period } = this.state;
    const key = JSON.stringify(stretch ?? period);
    if (key === this.#askedSentences && !again) return;
    this.#askedSentences = key;
    const [from, to] = stretch ? [stretch.lo, stretch.hi] : [this.#from, null];
    this.#latestSentences
      .ask((signal) => client.incidents(from, to, signal))
      .then((answer) => {
        if (!answer) return;
        this.#incidents = answer;
        this.#about = [stretch, stretch ? null : PERIODS[period][2]];
        this.#show();
      })
      .catch((error) => {
        if (!(error instanceof BackendError)) throw error;
        this.#askedSentences = "";
      });
  }

  #show(): void {
    const header = this.#header,
      lanes = this.#lanes,
      { state } = this;
    if (!header) return;
    if (document.activeElement !== this.#search) this.#search.value = state.filter;
    const shown = this.#filter.select(state.filter, lanes, ({ run }) => [run]);
    this.#search.classList.toggle("wrong", this.#filter.problem !== null);
    const key = JSON.stringify([state.unfolded, state.filter, this.#filter.isAsking]);
    if (key !== this.#rowsKey) this.#rows = fleetRowsOf(header.groups, lanes, new Set(shown), state.unfolded);
    this.#rowsKey = key;
    const whole = { lo: header.from ?? header.to - AROUND_SECS, hi: header.to };
    const bands = (this.#incidents?.sentences ?? []).flatMap(({ together, at }) => (together && at ? [at] : []));
    this.#chart.update({ rows: this.#rows, whole, stretch: state.stretch, bands }, state.zoom);
    const [stretch, period] = this.#about;
    if (this.#incidents) this.#happenings.update(this.#incidents, stretch ?? whole, period);
    this.#periods.show(state.period);
    const choices = ["prefix", "host", ...header.label_names.map((name) => `label:${name}`)];
    refresh(this.#lanesBy, ...choices.map((value) => h("option", { value }, `by ${value}`)));
    this.#lanesBy.value = state.lanesBy;
  }

  /** Open a run at a moment, by its machine's clock. */
  #open({ run, ahead }: FleetLane, at: { since: number; until: number } | null): void {
    const zoom = at && { lo: at.since + ahead - AROUND_SECS, hi: at.until + ahead + AROUND_SECS };
    this.change({ run, zoom, axis: zoom ? "wall" : null, tags: null }, false);
  }

  #fold(key: string): void {
    const { unfolded } = this.state;
    const others = unfolded.filter((each) => each !== key);
    this.change({ unfolded: others.length < unfolded.length ? others : [...unfolded, key] }, true);
  }

  tick(now: number): void {
    this.#now = now;
  }

  restyle(): void {
    this.#chart.restyle();
  }

  print(): void {
    this.#chart.restyle();
  }

  focusSearch(): void {
    this.#search.focus();
    this.#search.select();
  }

  escape(): boolean {
    const stretch = this.#stretch;
    if (stretch) this.change({ stretch: null, zoom: null }, true);
    return stretch !== null;
  }

  close(): void {
    this.#latest.cancel();
    this.#latestSentences.cancel();
    this.#chart.close();
  }
}
