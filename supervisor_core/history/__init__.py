"""The history of runs as tables, in files that outlive the logdir: JSON lines, or Parquet."""
