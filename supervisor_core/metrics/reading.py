"""`Reading`: what an exporter adds to a run's metrics, of how its files were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from supervisor_core.metrics.metric import Sample, Stage
from supervisor_core.metrics.table import EXPORTER_METRICS
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the exporter adds to a run's metrics: whether and how completely its events files were read."""

    logdir: str
    """The label of the logdir that they are below."""
    success: bool
    last_event_at: float | None
    corrupt_records: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Items beyond a bound (docs/limits.md), by kind."""

    @classmethod
    def of(cls, watched: WatchedRun, logdir: str, *, success: bool) -> Reading:
        """Return the reading of a run."""
        return cls(
            logdir=logdir,
            success=success,
            last_event_at=last_event_at(watched.run),
            corrupt_records=watched.corrupt_records,
            dropped=dict(watched.dropped),
        )

    def samples(self, run: str, stage: Stage) -> Iterator[tuple[str, list[Sample]]]:
        """Yield the metrics of a run in a stage, by their names in `EXPORTER_METRICS`. One that cannot be read is
        served as that in any stage."""
        label = {"run": run}
        rows = {
            "run_read_success": [Sample({**label, "logdir": self.logdir}, self.success)],
            "last_event_timestamp_seconds": [] if self.last_event_at is None else [Sample(label, self.last_event_at)],
            "corrupt_records_total": [Sample(label, self.corrupt_records)],
            "dropped_total": [Sample({**label, "kind": kind}, count) for kind, count in sorted(self.dropped.items())],
        }
        for name, samples in rows.items():
            if stage >= EXPORTER_METRICS[name].stage or (name == "run_read_success" and not self.success):
                yield name, samples


def last_event_at(run: Run) -> float | None:
    """Return when a run's newest event was, by the exporter's clock as far as is known; None where unknown."""
    if not run.last_event_at:  # some writers have all their events happen in 1970
        return None
    return run.last_event_at - (run.clock_skew_secs or 0.0)
