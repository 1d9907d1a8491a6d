/** The curves of runs and tags, fetched as fine as they are looked at: what is in sight first, few at once. */
import type { AxisKind } from "../logic/axis";
import type { Layer, Shown } from "../logic/layers";
import { shownOf } from "../logic/layers";
import type { Place } from "../logic/segments";
import { linesOf } from "../logic/segments";
import type { Stretch } from "../logic/window";
import { columnsOf } from "../logic/window";
import type { ScalarQuery } from "../net/client";
import { BackendError, client } from "../net/client";
import type { Columns, ScalarHeader } from "../types/api";

const MOST_AT_ONCE = 6;
const AGAIN_MS = 500;

/** How curves are looked at. */
export interface Wanted {
  by: ScalarQuery["by"];
  smoothing: number;
  /** Null: all of the axis. */
  stretch: Stretch | null;
  width: number;
}

/** A part of a curve as it was asked for. */
interface Part {
  /** What was asked for; empty before. */
  key: string;
  /** By what, and how smoothed. */
  about: string;
  layer: Layer | null;
}

/** Where points are on an axis; null where what was answered does not say it. */
export type Placing = (scalars: Columns<ScalarHeader>) => Place | null;

const nothing = (): Part => ({ key: "", about: "", layer: null });

export interface Curve {
  readonly run: string;
  readonly tag: string;
  whole: Part;
  window: Part;
  /** What there is to draw; made again when data or axis change. */
  shown: Shown[];
  /** Why it cannot be had; null where it can. */
  problem: string | null;
  /** How often its run has changed. */
  version: number;
}

interface Job {
  curve: Curve;
  part: "whole" | "window";
  key: string;
  query: ScalarQuery;
}

const nameOf = (run: string, tag: string): string => JSON.stringify([run, tag]);

export class CurveLoader {
  readonly #curves = new Map<string, Curve>();
  readonly #flights = new Map<Curve, { job: Job; control: AbortController }>();
  #wanted: Wanted | null = null;
  #placing: Placing = () => null;
  #kind: AxisKind | null = null;
  #order: Curve[] = [];
  #again = 0;

  /** `arrived`: called when a curve has changed. */
  constructor(private readonly arrived: (curve: Curve) => void) {}

  curve(run: string, tag: string): Curve {
    const name = nameOf(run, tag);
    let curve = this.#curves.get(name);
    if (!curve) {
      curve = { run, tag, whole: nothing(), window: nothing(), shown: [], problem: null, version: 0 };
      this.#curves.set(name, curve);
    }
    return curve;
  }

  /** Keep only what is compared, and ask again for what has changed; null: everything may have. */
  refresh(runs: ReadonlySet<string>, changed: ReadonlySet<string> | null): void {
    for (const [name, curve] of this.#curves) {
      if (!runs.has(curve.run)) this.#curves.delete(name);
      else if (!changed || changed.has(curve.run)) curve.version++;
    }
  }

  /** Another axis, or other places on it. */
  setPlace(kind: AxisKind, placing: Placing): void {
    this.#placing = placing;
    for (const curve of this.#curves.values()) {
      // A stretch of one axis is none of another.
      if (kind !== this.#kind) curve.window = nothing();
      this.#place(curve);
    }
    this.#kind = kind;
  }

  /** Fetch these, the first ones first. What was asked for and is no longer wanted is called off. */
  fetch(order: Curve[], wanted: Wanted): void {
    this.#wanted = wanted;
    this.#order = order;
    const present = new Set(order);
    for (const [curve, { job, control }] of this.#flights) {
      const next = present.has(curve) ? this.#next(curve, wanted) : null;
      if (next?.key !== job.key) {
        this.#flights.delete(curve);
        control.abort();
      }
    }
    this.#pump();
  }

  close(): void {
    window.clearTimeout(this.#again);
    for (const { control } of this.#flights.values()) control.abort();
    this.#flights.clear();
    this.#order = [];
  }

  #pump(): void {
    const wanted = this.#wanted;
    if (!wanted) return;
    // All of each first: a finer stretch is for later.
    for (const part of ["whole", "window"]) {
      for (const curve of this.#order) {
        if (this.#flights.size >= MOST_AT_ONCE) return;
        if (this.#flights.has(curve)) continue;
        const job = this.#next(curve, wanted);
        if (job?.part === part) void this.#fly(job);
      }
    }
  }

  /** What a curve lacks. */
  #next(curve: Curve, { by, smoothing, stretch, width }: Wanted): Job | null {
    const all = { by, from: null, to: null };
    const job = (part: Job["part"], { from, to }: Stretch): Job => {
      const query = { by, smoothing: smoothing || null, from, to, pixels: columnsOf({ by, from, to }, width) };
      return { curve, part, query, key: JSON.stringify([query, curve.version]) };
    };
    const whole = job("whole", all);
    if (curve.whole.key !== whole.key) return whole;
    if (!stretch || !curve.whole.layer?.scalars.header.thinned) return null;
    const window = job("window", stretch);
    return curve.window.key === window.key ? null : window;
  }

  async #fly(job: Job): Promise<void> {
    const { curve, part, key, query } = job;
    const control = new AbortController();
    this.#flights.set(curve, { job, control });
    const isCurrent = (): boolean => this.#flights.get(curve)?.control === control;
    let found: Columns<ScalarHeader> | null = null;
    let problem: string | null = null;
    try {
      found = await client.scalars(curve.run, curve.tag, query, control.signal);
    } catch (error) {
      if (!isCurrent()) return;
      if (!(error instanceof BackendError)) throw error;
      if (error.kind === "starting" || error.kind === "gone") {
        this.#flights.delete(curve);
        window.clearTimeout(this.#again);
        // Where there is no answer, the page asks again in its own time.
        if (error.kind === "starting") this.#again = window.setTimeout(() => this.#pump(), AGAIN_MS);
        curve.problem = error.kind === "starting" ? "being read…" : error.message;
        this.arrived(curve);
        return;
      }
      problem = error.message;
    }
    if (!isCurrent()) return;
    this.#flights.delete(curve);
    curve.problem = problem;
    curve[part] = { key, about: `${query.by} ${query.smoothing}`, layer: found && { scalars: found, lines: [] } };
    // A stretch that is no finer, or smoothed otherwise, is not put into it.
    if (!curve.whole.layer?.scalars.header.thinned || curve.window.about !== curve.whole.about)
      curve.window = nothing();
    this.#place(curve);
    this.arrived(curve);
    this.#pump();
  }

  #place(curve: Curve): void {
    const { whole, window } = curve;
    for (const { layer } of [whole, window]) {
      if (!layer) continue;
      const place = this.#placing(layer.scalars);
      layer.lines = place ? linesOf(layer.scalars, place) : [];
    }
    curve.shown = shownOf(whole.layer, window.layer);
  }
}
