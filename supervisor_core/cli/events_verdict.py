"""What ``verify`` says of events files: every record's checksum looked at, pictures and graphs included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from supervisor_core.events.chunk import FileFacts
from supervisor_core.events.index import LogdirIndex


@dataclass(frozen=True, kw_only=True)
class EventsVerdict:
    """One events file, as ``--json`` shows it."""

    file: str
    """Its path."""
    size: int | None
    """Bytes; None where it could not be asked."""
    records: int
    """Whole records."""
    state: Literal["good", "torn", "damaged", "skipped", "unreadable"]
    """``torn``: it ends within a record, which is being written or was cut by a kill; ``skipped``: no events file."""
    detail: str | None
    """What is wrong, and where; None if nothing is."""

    @property
    def is_harmless(self) -> bool:
        """Whether it is no fault."""
        return self.state not in ("damaged", "unreadable")


def verify_events(
    logdir: str, on_progress: Callable[[int, int], None]
) -> tuple[Mapping[str, tuple[EventsVerdict, ...]], tuple[str, ...]]:
    """Read every events file in and below a logdir, byte by byte.

    Args:
        logdir: the directory.
        on_progress: called after each run with how many are read, and how many there are.

    Returns:
        The verdicts by run, and the directories that could not be listed.

    Raises:
        EventsError: if no file system for a remote path is installed.
    """
    index = LogdirIndex(logdir, thorough=True)
    index.refresh(on_progress, take=lambda name, chunks: None)
    found = {name: tuple(_verdict(file) for file in run.files) for name, run in index.runs.items()}
    return found, tuple(problem.text for problem in index.problems)


def _verdict(file: FileFacts) -> EventsVerdict:
    state: Literal["good", "torn", "damaged", "skipped", "unreadable"] = "good"
    detail: str | None = None
    if file.skipped is not None:
        state, detail = ("unreadable" if file.unreadable else "skipped"), file.skipped
    elif file.corrupt_records:
        first = next((item for item in file.problems if item.offset is not None), None)
        more = f" ({file.corrupt_records - 1} more)" if file.corrupt_records > 1 else ""
        state, detail = "damaged", f"at byte {first.offset:,}: {first.text}{more}" if first else None
    elif file.torn_bytes:
        state, detail = (
            "torn",
            f"its last {file.torn_bytes:,} bytes are no whole record: being written, or cut by a kill",
        )
    return EventsVerdict(file=file.path, size=file.size_bytes, records=file.records, state=state, detail=detail)
