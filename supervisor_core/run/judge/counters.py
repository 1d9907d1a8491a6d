"""What a run counts for a scraper: its failures by host, its time by activity, and the process seconds that were lost.

Each is final once it is counted. A death counts when the reader's verdict is that the run is dead, on the host where it
died, and the time since then counts as downtime until the run is started again or given up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf

from supervisor_core.run.fold.goodput import GIVEN_UP_SECS
from supervisor_core.run.fold.session_facts import LATE_SECS, LEAST_SILENCE_SECS
from supervisor_core.run.model.program_launch import SLACK_SECS, ProgramLaunch
from supervisor_core.run.model.run import DOWNTIME, LIVE, Outcome, Run

_FAILED: frozenset[Outcome] = frozenset(("lost", "error"))
"""Outcomes of sessions that ended unplanned."""
_PLANNED: frozenset[Outcome] = frozenset(("completed", "exhausted", "running"))
_FAULTS = frozenset(("error", "oom", "hang"))
"""Causes by which a restarter ended a session that its own record calls ended by a signal."""
REASON_OF_CAUSE = {**{cause: cause for cause in _FAULTS}, "signal": "lost", "lost": "lost", "not_started": "error"}
"""The reason for which a program failed that had no session, by the cause that its restarter recorded."""

MAX_PLACES = 8
"""Pairs of host and reason that one run counts apart."""
OTHER_HOSTS = "other"
"""The host of failures beyond that."""
AWAITED_SECS = 120.0
"""How long the end of a session waits for what its restarter says of it: why it ended must not change once counted."""


def unplanned_ends(run: Run) -> list[str | None]:
    """Return of each session why it ended, if that was unplanned: ``lost``, ``error``, or what its restarter says,
    ``oom`` or ``hang``; else None."""
    causes = {launch.session: launch.cause for launch in run.launches if launch.session and launch.ended_at is not None}
    launches = launches_of_inferred(run)
    found: list[str | None] = []
    for session in run.sessions:
        launch, cause = launches.get(session.id), causes.get(session.id)
        reason = cause if cause in _FAULTS else session.outcome if session.outcome in _FAILED else None
        if launch is not None:
            reason = REASON_OF_CAUSE[launch.cause or ""]
        found.append(None if session.outcome in _PLANNED else reason)
    return found


def failures(run: Run, now: float) -> Mapping[tuple[str, str], int]:
    """Return the number of unplanned ends of a run by host and reason. Of a live run also those of its host that have
    not happened: 0.

    Args:
        run: the run.
        now: the present wall time, by the clock of its machine.
    """
    ends = list(zip(run.sessions, unplanned_ends(run), strict=True))
    if ends and _is_awaited(run, now):
        ends.pop()
    of_launches = launches_of_inferred(run)
    found: list[tuple[float, str, str]] = [
        (session.started_at or 0.0, session.host or "", reason)
        for session, reason in ends
        if reason is not None and session.id not in of_launches
    ]
    for launch in launches_without_session(run):
        reason = REASON_OF_CAUSE.get(launch.cause or "")
        if reason is not None:
            found.append((launch.started_at or 0.0, launch.host or "", reason))
    counted: Counter[tuple[str, str]] = Counter()
    for _, host, reason in sorted(found):
        place = (host, reason)
        counted[place if place in counted or len(counted) < MAX_PLACES else (OTHER_HOSTS, reason)] += 1
    last = run.sessions[-1] if run.sessions else None
    if last is not None and not last.inferred and last.host and run.state in LIVE:
        for reason in ("error", "lost", *(("hang", "oom") if run.launches else ())):
            if len(counted) < MAX_PLACES:
                counted[last.host, reason] += 0
    return counted


def _is_awaited(run: Run, now: float) -> bool:
    """Return whether the restarter of the newest session, which has ended, may still say why."""
    launch, ended_at = run.launches[-1] if run.launches else None, run.sessions[-1].ended_at
    return launch is not None and launch.ended_at is None and ended_at is not None and now - ended_at < AWAITED_SECS


def launches_without_session(run: Run) -> Iterator[ProgramLaunch]:
    """Yield the launches that have ended and had no session with telemetry, whose end is counted with that."""
    if not run.launches:
        return
    sessions = [session for session in run.sessions if not session.inferred]
    ids, starts = {session.id for session in sessions}, sorted(session.started_at or 0.0 for session in sessions)
    for launch in run.launches:
        if launch.ended_at is None or launch.session in ids:
            continue
        later = bisect_left(starts, (launch.started_at or 0.0) - SLACK_SECS)
        if later == len(starts) or starts[later] > launch.ended_at + SLACK_SECS:
            yield launch


def launches_of_inferred(run: Run) -> Mapping[str, ProgramLaunch]:
    """Return the launches without telemetry that failed, by the id of the inferred session that ended with each: the
    last one of a launch, by their times. Their end is one, that of the launch."""
    if not (run.launches and any(session.inferred for session in run.sessions)):
        return {}
    failed = {launch.launch for launch in launches_without_session(run) if launch.cause in REASON_OF_CAUSE}
    launches = sorted(run.launches, key=_began)
    starts = [_began(launch) for launch in launches]
    found: dict[str, tuple[str, ProgramLaunch]] = {}
    for session in run.sessions:
        index = bisect_right(starts, inf if session.ended_at is None else session.ended_at) - 1
        if not session.inferred or index < 0:
            continue
        launch = launches[index]
        if launch.launch in failed and (session.started_at or 0.0) <= (launch.ended_at or 0.0):
            found[launch.launch] = session.id, launch
    return dict(found.values())


def _began(launch: ProgramLaunch) -> float:
    return launch.started_at or 0.0


def dead_secs(run: Run, now: float) -> float:
    """Return how much of the time since a run's death is downtime for certain; 0 of one that is not dead.

    A session that left no record of its end may have run on for a little; a run that is not started again is given up
    after `GIVEN_UP_SECS`.

    Args:
        run: the run.
        now: the present wall time, by the clock of its machine.
    """
    last = run.sessions[-1] if run.sessions else None
    if last is None or last.inferred or last.ended_at is None:
        return 0.0
    if run.state not in ("lost", "failed") and not run.restarting:
        return 0.0
    unseen = (last.heartbeat_secs or LEAST_SILENCE_SECS) + LATE_SECS if last.outcome == "lost" else 0.0
    return max(0.0, min(now - last.ended_at, GIVEN_UP_SECS) - unseen)


def time_secs(run: Run, now: float) -> Mapping[str, float]:
    """Return the seconds of a run by `BUCKETS`, as far as that is decided."""
    booked, dead = run.goodput.booked_secs, dead_secs(run, now)
    if not dead and DOWNTIME in booked:
        return booked
    return {**booked, DOWNTIME: booked.get(DOWNTIME, 0.0) + dead}


def lost_process_secs(run: Run, now: float) -> Mapping[str, float]:
    """Return the seconds of a run that did not go into kept steps, as far as that is decided, by `BUCKETS`: each as
    often as the session had devices, see `Session.weight`."""
    lost, dead = run.goodput.lost_process_secs, dead_secs(run, now)
    if not dead and DOWNTIME in lost:
        return lost
    return {**lost, DOWNTIME: lost.get(DOWNTIME, 0.0) + dead * run.goodput.weight}


def is_same_run(run: Run, before: Run) -> bool:
    """Return whether two runs of one directory begin with the same session: it is not another one in its place."""
    return [each.id for each in run.sessions[:1]] == [each.id for each in before.sessions[:1]]
