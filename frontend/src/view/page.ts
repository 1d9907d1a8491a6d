/** What the app shows below its header, apart from the list of runs. */
import type { UrlState } from "../logic/url_state";

export interface Page {
  /** What is shown: another name is another page. */
  readonly name: string;
  readonly element: HTMLElement;
  /** Show what the address says. */
  update(state: UrlState): void;
  /** Ask for what may have changed; whether there was an answer. `changed`: the runs; null for everything. */
  load(changed: Set<string> | null): Promise<boolean>;
  tick(now: number): void;
  /** The colours have changed. */
  restyle(): void;
  print(printing: boolean): void;
  focusSearch(): void;
  /** Take back the last thing that Escape can; whether there was one. */
  escape(): boolean;
  close(): void;
}

/** The name of a run's page. */
export const runPageName = (run: string): string => `run ${run}`;
