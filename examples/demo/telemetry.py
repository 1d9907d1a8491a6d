"""What the supervisor left in a run's events files, read without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from supervisor_core import EventsError
from supervisor_core.events import EventsFileReader, Record, TelemetryMark


def events_files(run: Path) -> list[Path]:
    """Return the run's events files, oldest first."""
    return sorted(run.glob("events.out.tfevents.*"))


def read_telemetry(file: Path) -> Iterator[Record]:
    """Yield the supervisor's records of one events file, up to where a kill cut it short.

    Raises:
        EventsError: if some of it is damaged.
    """
    chunk = EventsFileReader(str(file)).read()
    if chunk is None:
        return
    if chunk.problems:
        raise EventsError(f"{file}: {chunk.problems[0].text}")
    yield from (mark.record for mark in chunk.marks if isinstance(mark, TelemetryMark))
