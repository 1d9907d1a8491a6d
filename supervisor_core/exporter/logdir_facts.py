"""`LogdirFacts`: what the exporter says of each logdir, and how that is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from supervisor_core.metrics.metric import Metric, Sample
from supervisor_core.metrics.table import (
    EXPORTER_LAST_REFRESH,
    EXPORTER_LOGDIR_UP,
    EXPORTER_REFRESH_DURATION,
    EXPORTER_REFRESH_FAILURES,
    EXPORTER_REQUESTS,
    EXPORTER_RUNS,
)
from supervisor_core.storage.local import local_path
from supervisor_core.watch.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a look at a logdir has found."""

    snapshot: Snapshot
    at: float | None = None
    """When the last one that reached the logdir ended, as wall time; None while there was none."""
    secs: float | None = None
    """How long it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogdirFacts:
    """One logdir, as of the page that is up."""

    label: str
    runs: int = 0
    """How many of its runs are on the page."""
    scan: Scan | None = None
    failures: int = 0
    """Looks at which something could not be read, or shown."""

    @property
    def looked(self) -> bool:
        """Whether it has been looked at, once at least, to the end."""
        return self.scan is not None and self.scan.at is not None

    @property
    def reachable(self) -> bool:
        """Whether it was there and could be listed at the last look."""
        return self.scan is None or self.scan.snapshot.reachable


def facts_samples(logdirs: Sequence[LogdirFacts]) -> Iterator[tuple[Metric, list[Sample]]]:
    """Return what is served of the logdirs; of one whose first scan is not through, only its failures."""

    def of(read: Callable[[LogdirFacts, Scan], float | None]) -> list[Sample]:
        return [
            Sample({"logdir": facts.label}, value)
            for facts in logdirs
            if facts.scan is not None and facts.looked and (value := read(facts, facts.scan)) is not None
        ]

    yield (
        EXPORTER_LOGDIR_UP,
        [
            Sample({"logdir": facts.label}, float(facts.reachable))
            for facts in logdirs
            if facts.looked or not facts.reachable
        ],
    )
    yield EXPORTER_RUNS, of(lambda facts, scan: facts.runs)
    yield EXPORTER_LAST_REFRESH, of(lambda facts, scan: scan.at)
    yield EXPORTER_REFRESH_DURATION, of(lambda facts, scan: scan.secs)
    yield EXPORTER_REQUESTS, of(lambda facts, scan: scan.snapshot.requests)
    yield EXPORTER_REFRESH_FAILURES, [Sample({"logdir": facts.label}, facts.failures) for facts in logdirs]


def shown_logdir(logdir: str) -> str:
    """Return a logdir as labels have it: a local one by its absolute path."""
    local = local_path(logdir)
    return logdir if local is None else os.path.abspath(local)
