"""Launches of a program by a restarter (``tb-supervisor run``), from the records in its own events files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from supervisor_core.events.chunk import TelemetryMark
from supervisor_core.events.record_fields import values_of
from supervisor_core.events.telemetry import LaunchRecord
from supervisor_core.run.model import ProgramLaunch, Restart, Session

LAST_WORDS_CHARS = 2000
"""How much of standard error's end is kept of a launch."""
SLACK_SECS = 2.0
"""A session's last event may have a later time than the launch's end by this much."""


def launch_of(mark: TelemetryMark, record: LaunchRecord) -> ProgramLaunch:
    """Return what a record says of its launch."""
    stderr = None if record.stderr is None else record.stderr[-LAST_WORDS_CHARS:]
    ended_at = mark.at if record.state == "end" else None
    return ProgramLaunch(**values_of(replace(record, stderr=stderr)), ended_at=ended_at)


def merged(launches: Iterable[ProgramLaunch]) -> tuple[ProgramLaunch, ...]:
    """Return each launch once, in order: what its end says replaces what its begin says."""
    found: dict[str, ProgramLaunch] = {}
    for launch in launches:
        if launch.launch not in found or launch.ended_at is not None:
            found[launch.launch] = launch
    return tuple(sorted(found.values(), key=lambda launch: (launch.attempt, launch.started_at or 0.0)))


def joined(
    restarts: Sequence[Restart], sessions: Sequence[Session], launches: Sequence[ProgramLaunch]
) -> tuple[Restart, ...]:
    """Return the restarts, each with the launch whose end it follows: that of its earlier session, or the last one
    that ended between the two sessions."""
    ended = sorted(
        (launch for launch in launches if launch.ended_at is not None), key=lambda item: item.ended_at or 0.0
    )
    if not ended:
        return tuple(restarts)
    by_session = {launch.session: launch for launch in ended if launch.session is not None}
    times = [launch.ended_at or 0.0 for launch in ended]
    ends = {session.id: session.ended_at for session in sessions}
    found = []
    for restart in restarts:
        launch = by_session.get(restart.from_session)
        before = ends.get(restart.from_session)
        if launch is None and restart.at is not None and before is not None:
            position = bisect_right(times, restart.at + SLACK_SECS) - 1
            launch = ended[position] if position >= 0 and times[position] >= before - SLACK_SECS else None
        found.append(restart if launch is None else replace(restart, launch=launch))
    return tuple(found)
