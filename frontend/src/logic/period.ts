/** The period that the timeline shows: the seconds that it reaches back from now, its name, and what a reader hears; null: all. */
export const PERIODS = {
  "12h": [43_200, "12 h", "the last 12 hours"],
  "24h": [86_400, "24 h", "the last 24 hours"],
  "7d": [604_800, "7 d", "the last 7 days"],
  all: [null, "All", "all of the time"],
} as const;
export type Period = keyof typeof PERIODS;
