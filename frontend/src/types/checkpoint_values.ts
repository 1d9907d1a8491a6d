/** What the route `checkpoint_values` answers, as far as the tab shows it. */
export interface CheckpointValues {
  before: string | null;
  problem: string | null;
  values: { summary: string; has_nan: boolean } | null;
  change: { summary: string } | null;
  change_problem: string | null;
  /** Shows every tensor; null without a checkpoint before. */
  command: string | null;
}
