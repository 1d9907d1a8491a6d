"""What a fleet of thousands of runs costs to watch: one of ten trains, the others have ended.

Each fleet is written by `logdir.make`, watched by an exporter in a process of its own (`exporter`), and that by a real
Prometheus with our rules (`prometheus`), while the live runs write a heartbeat every 10 s.

    python -m benchmarks.fleet.logdir DIRECTORY        # a logdir to try things on
    python -m benchmarks.fleet.prometheus              # what each rule takes
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.report import Row


def rows(quick: bool) -> Iterable[Row]:
    """Measure."""
    from benchmarks.fleet.measure import measured_rows  # whose modules are programs, too

    return measured_rows(quick)
