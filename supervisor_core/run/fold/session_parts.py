"""What `SessionFold` is made of, one class for each subject: clock, steps, use of time, saves, stalls.

Each is filled record by record, and takes up what a later file of the same session holds (``absorb``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from supervisor_core.events.record_fields import values_of
from supervisor_core.events.telemetry import CheckpointRecord, OpenStall, PauseReport, RecoveryRecord, StallRecord
from supervisor_core.run.fold.bounds import Allowance, Newest
from supervisor_core.run.fold.step_time_curve import StepTimeCurve
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.distribution import SAVE_BOUNDS, Distribution
from supervisor_core.run.model.run import BUCKETS, Recovery, Stall

Stacks = Mapping[str, tuple[str, ...]]
Silent = tuple[float, float, float, str | None]
"""Wall time of the report; total seconds in which the process did not run, before the report and by then; why."""

NOTHING: Mapping[Any, Any] = {}

_CAUSES = ("stopped", "machine_suspended")
"""Why a process did not run."""

CLOCK_SET_SECS = 2.0
"""The wall clock was set if it moved by more than this against the monotonic clock."""


@dataclass(slots=True)
class SessionClock:
    """A session's times, by its wall clock, which may be set, and its monotonic clock."""

    first_at: float | None = None
    """Wall time of its first record."""
    last_at: float | None = None
    """Wall time of its last record; records from before its clock was set do not count."""
    begun_at: float | None = None
    """Its start by the present wall clock, calculated with the monotonic clock."""
    first_elapsed_secs: float | None = None
    """Its age at its first heartbeat in this file, by the monotonic clock."""

    def add(self, at: float, elapsed_secs: float | None) -> bool:
        """Add the time of a record; return whether the wall clock was set since the two were last compared.

        Args:
            at: its wall time.
            elapsed_secs: the session's age by the monotonic clock; None where the record does not say.
        """
        if elapsed_secs is not None and self.first_elapsed_secs is None:
            self.first_elapsed_secs = elapsed_secs
        return self._add(at, at, None if elapsed_secs is None else at - elapsed_secs)

    def absorb(self, later: SessionClock) -> bool:
        """Add the times of a later file; return whether the wall clock was set in between."""
        if later.first_at is None or later.last_at is None:
            return False
        return self._add(later.first_at, later.last_at, later.begun_at)

    def _add(self, first_at: float, last_at: float, begun_at: float | None) -> bool:
        was_set = clocks_differ(self.begun_at, begun_at)
        self.first_at = first_at if self.first_at is None else self.first_at
        self.last_at = last_at if self.last_at is None or was_set else max(last_at, self.last_at)
        self.begun_at = self.begun_at if begun_at is None else begun_at
        return was_set


def clocks_differ(one: float | None, other: float | None) -> bool:
    """Return whether two calculated start times of a session differ by more than one wall clock explains."""
    return one is not None and other is not None and abs(one - other) > CLOCK_SET_SECS


class StepFold:
    """A session's steps, and its recoveries, which undo some of them."""

    __slots__ = ("_allowance", "_going_back", "curves", "first_report", "last_step", "most_per_sec", "recoveries")

    def __init__(self, allowance: Allowance) -> None:
        self.first_report: tuple[int, int] | None = None
        """The first reported step, and the number of steps done by then."""
        self.last_step: int | None = None
        """Its highest step since its last recovery."""
        self.most_per_sec: float | None = None
        """The highest reading of steps per second."""
        self.curves = [StepTimeCurve()]
        """See `SessionFacts`."""
        self.recoveries: Newest[Recovery] = Newest(allowance, "recoveries", _chars_of_recovery)
        self._allowance = allowance
        self._going_back = False

    def since_recovery(self, step: int | None, phase: str | None) -> int | None:
        """Return the step of a heartbeat; None until training resumes: it may still be one from before the recovery."""
        self._going_back &= phase == "restoring"
        return None if self._going_back else step

    def reached(self, step: int | None) -> None:
        """Add a step that was reached."""
        if step is not None and (self.last_step is None or step > self.last_step):
            self.last_step = step

    def rate(self, steps_per_sec: float | None) -> None:
        """Add a reading of steps per second."""
        if steps_per_sec is not None:
            self.most_per_sec = max(self.most_per_sec or 0.0, steps_per_sec)

    def productive(self, secs: float, step: int | None) -> None:
        """Add the productive seconds by now, and the step that was reached in them."""
        if step is not None:
            self.curves[-1].reached(step, secs)
        self.curves[-1].end_secs = max(self.curves[-1].end_secs, secs)

    def recovered(self, at: float, record: RecoveryRecord) -> None:
        """Add a recovery."""
        from_step, to_step = record.step, record.restored_step
        self.recoveries.add(Recovery(**values_of(replace(record, losses=max(1, record.losses))), at=at))
        curve = self.curves[-1]
        if from_step is not None:
            curve.reached(from_step, curve.end_secs)
        if to_step is not None and self._allowance.curves:
            self._allowance.curves -= 1
            self.curves.append(StepTimeCurve(to_step, curve.end_secs))
        self.last_step = to_step  # None: until the next heartbeat
        self._going_back = True

    def absorb(self, later: StepFold) -> None:
        """Add what a later file holds."""
        self.first_report = self.first_report or later.first_report
        self.rate(later.most_per_sec)
        self.curves[-1].absorb(later.curves[0])
        for curve in later.curves[1:]:
            self.curves.append(StepTimeCurve(curve.first_step, max(curve.begin_secs, self.curves[-1].end_secs)))
            self.curves[-1].absorb(curve)
        if later.recoveries.total:
            self.last_step = later.last_step
        else:
            self.reached(later.last_step)
        self.recoveries.extend(later.recoveries)


def _chars_of_recovery(item: Recovery) -> int:
    return len(item.error) + len(item.restored_checkpoint or "")


class ActivityFold:
    """A session's seconds by bucket, and the times in which its process did not run."""

    __slots__ = ("_silent_secs", "secs", "silences")

    def __init__(self, allowance: Allowance) -> None:
        self.secs = NOTHING
        """By the latest report."""
        self.silences: Newest[Silent] = Newest(allowance, "silences")
        self._silent_secs = 0.0
        """Total seconds in which the process did not run, by the latest report."""

    def add(self, at: float, activity: Mapping[str, float], pause: PauseReport | None) -> None:
        """Add a report of all seconds so far, and of the latest pause."""
        self.secs = {bucket: activity[bucket] for bucket in BUCKETS if bucket in activity}
        cause = None if pause is None else pause.cause
        self._silent(at, self.secs.get("silent", 0.0), cause if cause in _CAUSES else None)

    def _silent(self, at: float, secs: float, cause: str | None) -> None:
        if secs > self._silent_secs:
            self.silences.add((at, self._silent_secs, secs, cause))
            self._silent_secs = secs

    def absorb(self, later: ActivityFold) -> None:
        """Add what a later file holds."""
        self.secs = later.secs or self.secs
        for at, before, secs, cause in later.silences.items:
            self._silent_secs = max(self._silent_secs, before)
            self._silent(at, secs, cause)
        self.silences.dropped += later.silences.dropped


_NO_SAVES = Distribution(bounds=SAVE_BOUNDS, counts=(0,) * (len(SAVE_BOUNDS) + 1), sum=0.0)


class SaveFold:
    """A session's saves."""

    __slots__ = ("_kept", "blocked_secs", "checkpoints", "count", "failures", "failures_in_a_row", "secs")

    def __init__(self, allowance: Allowance) -> None:
        self.checkpoints: Newest[Checkpoint] = Newest(allowance, "checkpoints", _chars_of_save)
        self._kept = allowance.kept_saves
        self.count = self.failures = self.failures_in_a_row = 0
        self.secs = self.blocked_secs = _NO_SAVES
        """Durations of the successful ones, and for how long they blocked the training."""

    def add(self, at: float, record: CheckpointRecord, session: str) -> bool:
        """Add a save; return whether something was saved.

        Args:
            at: its wall time.
            record: the record.
            session: the session's id: the same object for all.
        """
        self.checkpoints.add(Checkpoint(**{**values_of(record), "session": session}, at=at))
        if record.error is not None:
            self.count += 1
            self.failures += 1
            self.failures_in_a_row += 1
            self._keep_newest()
        elif record.path is not None:
            self.count += 1
            self.failures_in_a_row = 0
            self.secs = self.secs.with_value(record.secs or 0.0)
            self.blocked_secs = self.blocked_secs.with_value(record.blocked_secs or 0.0)
            self._keep_newest()
            return True
        return False

    def _keep_newest(self) -> None:
        """Remove the oldest save, but neither the first of the failures since the last good one nor that one: they say
        since when saves fail."""
        count = len(self.checkpoints)
        if self._kept is not None and count > self._kept:
            self.checkpoints.remove(0 if self.failures_in_a_row < count - 1 else 2)

    def absorb(self, later: SaveFold) -> None:
        """Add what a later file holds."""
        self.checkpoints.extend(later.checkpoints)
        has_succeeded = later.count > later.failures
        self.count += later.count
        self.failures += later.failures
        self.failures_in_a_row = later.failures_in_a_row + (0 if has_succeeded else self.failures_in_a_row)
        self.secs, self.blocked_secs = self.secs.merged(later.secs), self.blocked_secs.merged(later.blocked_secs)


def _chars_of_save(item: Checkpoint) -> int:
    return len(item.path or "") + len(item.error or "") + len(item.doubt or "")


_OF_LAST = ("same_frames", "activity", "verdict", "culprit", "culprit_location")
"""Fields of a stall that its last record gives."""


class StallFold:
    """The stalls of a session and of its services."""

    __slots__ = ("_count", "records", "stacks")

    def __init__(self, allowance: Allowance) -> None:
        self.records: Newest[tuple[float, int, StallRecord]] = Newest(allowance, "stalls")
        """Wall time, number of the stall, the record without its stacks."""
        self.stacks: Newest[tuple[int, Stacks]] = Newest(allowance, "stacks", _chars_of_stacks)
        """Number of the stall, and its stacks."""
        self._count = 0

    def add(self, at: float, record: StallRecord) -> None:
        """Add a record."""
        if record.state == "begin":
            self._count += 1
            if record.stacks:
                self.stacks.add((self._count, record.stacks))
        self.records.add((at, self._count, replace(record, stacks=NOTHING)))

    def absorb(self, later: StallFold) -> None:
        """Add what a later file holds."""
        for at, number, record in later.records.items:
            self.records.add((at, self._count + number, record))
        for number, stacks in later.stacks.items:
            self.stacks.add((self._count + number, stacks))
        self._count += later._count

    def stalls(self, ended_at: float | None) -> tuple[Stall, ...]:
        """Return each stall, by its begin and its end.

        Args:
            ended_at: when the session ended, and with it its open stalls; None where they last.
        """
        found: list[Stall] = []
        stacks = dict(self.stacks.items)
        begun: dict[str | None, Stall] = {}
        for at, number, record in self.records.items:
            service = record.service
            if record.state == "begin":
                if service in begun:  # its end was dropped
                    found.append(_ended(begun.pop(service), at))
                begun[service] = _begun(at, record, stacks.get(number, NOTHING))
            elif service not in begun:
                continue
            elif record.state == "lasts":
                lasts = {name: getattr(record, name) for name in _OF_LAST}
                begun[service] = replace(begun[service], **lasts)
            else:
                found.append(replace(begun.pop(service), until=at, secs=record.secs))
        return (*found, *(_ended(stall, ended_at) for stall in begun.values()))


def with_stall(stalls: Sequence[Stall], session: str, seen: OpenStall) -> tuple[Stall, ...]:
    """Return stalls with one of a session that was seen from outside: where its last one has no end, it is that one."""
    index = next((index for index in reversed(range(len(stalls))) if _is_open(stalls[index], session)), None)
    if index is None:
        return (*stalls, Stall(session=session, until=None, **values_of(seen)))
    stall = replace(stalls[index], secs=seen.secs, stacks={**stalls[index].stacks, **seen.stacks})
    if seen.blocked_since is not None:
        stall = replace(stall, blocked_since=seen.blocked_since)
        if seen.location is not None:
            stall = replace(stall, thread=seen.thread, location=seen.location)
    return (*stalls[:index], stall, *stalls[index + 1 :])


def _is_open(stall: Stall, session: str) -> bool:
    return stall.until is None and stall.session == session and stall.service is None


def _begun(at: float, record: StallRecord, stacks: Stacks) -> Stall:
    since = at if record.since is None else record.since
    secs = max(0.0, at - since)
    first = replace(record, since=since, secs=secs, stacks=stacks, same_frames=None, activity=None)
    return Stall(**values_of(first), until=None)


def _ended(stall: Stall, ended_at: float | None) -> Stall:
    """Return a stall of whose end there is no record, as it was when its session ended; None where it lasts."""
    return stall if ended_at is None else replace(stall, until=ended_at, secs=max(0.0, ended_at - stall.since))


def _chars_of_stacks(item: tuple[int, Stacks]) -> int:
    return chars_of_stacks(item[1])


def chars_of_stacks(stacks: Stacks) -> int:
    """Return the number of characters of stacks."""
    return sum(len(name) + 1 + sum(len(line) + 1 for line in lines) for name, lines in stacks.items())
