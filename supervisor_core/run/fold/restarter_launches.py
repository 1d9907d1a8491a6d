"""Launches of a program by a restarter (``tb-supervisor run``), from the records in its own events files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from supervisor_core.events.chunk import TelemetryMark
from supervisor_core.events.record_fields import values_of
from supervisor_core.events.telemetry import LaunchRecord, StallRecord
from supervisor_core.run.fold.bounds import Allowance, Newest
from supervisor_core.run.fold.session_fold import StallFold
from supervisor_core.run.model.program_launch import FAILED, SLACK_SECS, ProgramLaunch, launch_error
from supervisor_core.run.model.run import Outcome, Restart, Session, Stall

LAST_WORDS_CHARS = 2000
"""How much of standard error's end is kept of a launch."""


def launch_of(at: float, record: LaunchRecord) -> ProgramLaunch:
    """Return what a record of that time says of its launch, without the stall, of which `LaunchFold` takes care."""
    stderr = None if record.stderr is None else record.stderr[-LAST_WORDS_CHARS:]
    ended_at = at if record.state == "end" else None
    is_watched = record.state == "runs" and record.progress_timeout_secs is not None
    seen_at = at if is_watched else None
    return ProgramLaunch(**values_of(replace(record, stderr=stderr, stall=None)), ended_at=ended_at, seen_at=seen_at)


class LaunchFold:
    """The records of a restarter in one file.

    Args:
        allowance: bounds them together with those of the other files of the run.
    """

    __slots__ = ("_allowance", "_is_stalled", "_stalls", "launches")

    def __init__(self, allowance: Allowance) -> None:
        self.launches: Newest[ProgramLaunch] = Newest(allowance, "launches", _chars_of_launch)
        """One item for each record; of those that say that a launch runs, the latest."""
        self._allowance = allowance
        self._stalls: StallFold | None = None
        self._is_stalled = False

    @property
    def total(self) -> int:
        """Number of launches, dropped ones included; 0 in a file of another writer."""
        return self.launches.total

    @property
    def dropped(self) -> int:
        """Number of records and stalls dropped beyond the bounds."""
        stalls = self._stalls
        return self.launches.dropped + (0 if stalls is None else stalls.records.dropped + stalls.stacks.dropped)

    def add(self, mark: TelemetryMark, record: LaunchRecord) -> None:
        """Add a record."""
        launch, items = launch_of(mark.at, record), self.launches.items
        if record.stall is not None:
            self._add_stall(mark.at, record.stall)
        if record.state == "runs" and items and (items[-1].launch, items[-1].state) == (launch.launch, "runs"):
            items[-1] = launch if launch.seen_at is not None else items[-1]
            return
        if record.state == "end" and self._is_stalled:  # the hang is over with its launch
            self._add_stall(mark.at, StallRecord(session=launch.session or launch.launch, state="end"))
        self.launches.add(launch)

    def _add_stall(self, at: float, stall: StallRecord) -> None:
        self._is_stalled = stall.state != "end"
        self._stalls = self._stalls or StallFold(self._allowance)
        self._stalls.add(at, stall)

    def stalls(self) -> tuple[Stall, ...]:
        """Return the hangs of its launches; one that lasts has no end."""
        return tuple(
            stall if stall.until is None else replace(stall, secs=stall.until - stall.since)
            for stall in (() if self._stalls is None else self._stalls.stalls(None))
        )


def _chars_of_launch(launch: ProgramLaunch) -> int:
    return sum(map(len, filter(None, (launch.stderr, launch.command, launch.error, launch.reason, launch.stacks))))


def merged(launches: Iterable[ProgramLaunch]) -> tuple[ProgramLaunch, ...]:
    """Return each launch once, in order: what its end says replaces what its begin says."""
    found: dict[str, ProgramLaunch] = {}
    for launch in launches:
        known = found.get(launch.launch)
        found[launch.launch] = launch if known is None else _later(known, launch)
    return tuple(sorted(found.values(), key=lambda launch: (launch.attempt, launch.started_at or 0.0)))


def _later(known: ProgramLaunch, other: ProgramLaunch) -> ProgramLaunch:
    """Return what two records say of one launch, given in any order."""
    for launch in (other, known):
        if launch.ended_at is not None:
            return launch
    newest = max(known, other, key=lambda launch: launch.seen_at or 0.0)
    begun = known if known.state == "begin" else other
    return replace(begun, seen_at=newest.seen_at, progress_timeout_secs=newest.progress_timeout_secs)


def with_process(sessions: Sequence[Session], launches: Sequence[ProgramLaunch]) -> tuple[Session, ...]:
    """Return sessions, the newest with the process that its launch has started and with the error by which that has
    failed, if it has no telemetry to say so."""
    last = sessions[-1] if sessions else None
    if last is None or not last.inferred or last.started_at is None or last.ended_at is None:
        return tuple(sessions)
    for launch in reversed(launches):
        if launch.started_at is None or last.ended_at < launch.started_at:
            continue  # it began after the session
        if launch.ended_at is not None and last.started_at > launch.ended_at + SLACK_SECS:
            break
        error = launch_error(launch) if last.gone and launch.cause in FAILED else None
        return (*sessions[:-1], replace(last, host=launch.host, pid=launch.pid, error=error))
    return tuple(sessions)


OUTCOME_OF_CAUSE: Mapping[str, Outcome] = {
    **dict.fromkeys(("signal", "oom", "hang", "lost"), "lost"),
    **dict.fromkeys(("preempted", "stopped"), "signal"),
    "error": "error",
    "requested": "requested",
    "completed": "completed",
}
"""How a session without a record of its end has ended, by the cause of its launch's end."""


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
        if launch is not None:
            reason = OUTCOME_OF_CAUSE.get(launch.cause or "") if restart.reason == "unknown" else None
            restart = replace(restart, launch=launch, reason=reason or restart.reason)
        found.append(restart)
    return tuple(found)


def with_causes(sessions: Sequence[Session], restarts: Sequence[Restart]) -> tuple[Session, ...]:
    """Return sessions, those of which it was not known how they ended as their launches have ended.

    Args:
        sessions: in order.
        restarts: as `joined` returns them.
    """
    reasons = {restart.from_session: restart.reason for restart in restarts}
    return tuple(
        replace(session, outcome=reasons[session.id])
        if session.outcome == "unknown" and reasons.get(session.id, "unknown") != "unknown"
        else session
        for session in sessions
    )
