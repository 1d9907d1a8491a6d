"""From the records of a run's events files to the `Run`: no I/O, no clock.

The entry is `supervisor_core.run.fold.run_fold.RunFold`. Imports `run.model`.
"""
