"""What is to be said of a run, and of a fleet: findings, who keeps others waiting, incidents, costs. No I/O, no clock.

The entries are `supervisor_core.run.judge.findings.findings` and `fleet_report`. Imports `run.model` and `run.fold`.
"""
