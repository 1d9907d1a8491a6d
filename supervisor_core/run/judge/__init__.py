"""What is to be said of a run, and of a fleet. No I/O, no clock.

The entries are `findings` (what holds now), `history` (what went wrong in a run, with begin and end), `together` (the
same of several runs, in sentences), `culprit` (who keeps others waiting) and `fleet_report` (what it costs). Imports
`run.model` and `run.fold`.
"""
