"""`SessionFold`: the telemetry of one session in one file, record by record; `merged_session`: in all its files.

It is made of one class for each subject: clock, steps, use of time, saves, stalls, service threads, other processes of
the cluster. Each is filled record by record, and takes up what a later file of the same session holds (``absorb``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Generic, TypeVar

from supervisor_core.events.chunk import TelemetryMark
from supervisor_core.events.record_fields import replaced, values_of
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    DeathRecord,
    HeartbeatRecord,
    NoticeRecord,
    OpenStall,
    PauseReport,
    Record,
    RecoveryRecord,
    ResumeRecord,
    SessionRecord,
    StallRecord,
    StopRecord,
    ThreadStatus,
    WorkerStatus,
)
from supervisor_core.run.fold.bounds import MAX_THREADS, MAX_WORKERS, Allowance, Named, Newest, with_newest
from supervisor_core.run.fold.notices import NoticeFold
from supervisor_core.run.fold.step_time_curve import StepTimeCurve
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.distribution import SAVE_BOUNDS, Distribution
from supervisor_core.run.model.liveness_record import LivenessRecord
from supervisor_core.run.model.run import (
    BUCKET_OF_PHASE,
    BUCKETS,
    STALL,
    Recovery,
    Stall,
    ThreadHistory,
    ThreadSpan,
    ThreadTick,
    WorkerHistory,
    WorkerSpan,
)
from supervisor_core.run.model.words import UNKNOWN_WHY

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


_ROUNDED_SECS = 0.01
"""Heartbeats round their seconds, a stop record does not: a smaller difference is no silence."""


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
        if secs > self._silent_secs + _ROUNDED_SECS:
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


_MOST_UNRECORDED = 100
"""How many marks failed saves without a record have, the newest."""


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
        self._keep(Checkpoint(**{**values_of(record), "session": session}, at=at))
        if record.error is not None:
            self.count += 1
            self.failures += 1
            self.failures_in_a_row += 1
        elif record.path is not None:
            self.count += 1
            self.failures_in_a_row = 0
            self.secs = self.secs.with_value(record.secs or 0.0)
            self.blocked_secs = self.blocked_secs.with_value(record.blocked_secs or 0.0)
            return True
        return False

    def add_unrecorded(self, live: LivenessRecord, began_at: float, interval_secs: float | None) -> None:
        """Add the failed saves that a liveness file has counted, and no record has, as nothing could be written.

        Those after the last recorded save are dated as they were due, an interval after the one before.

        Args:
            live: the file, or what the progress page says.
            began_at: when the session began.
            interval_secs: the checkpoint interval; None: they are only counted.
        """
        new = min(live.save_failures - self.failures, live.save_failures_in_a_row - self.failures_in_a_row)
        self.count += live.save_failures - self.failures
        self.failures, self.failures_in_a_row = live.save_failures, live.save_failures_in_a_row
        last = self.checkpoints.items[-1].at if len(self.checkpoints) else began_at
        if not interval_secs or last is None:
            return
        new = min(new, int(max(0.0, live.written_at - last) // interval_secs))
        for number in range(max(1, new - _MOST_UNRECORDED + 1), new + 1):
            at, error = last + number * interval_secs, live.save_error or UNKNOWN_WHY
            self._keep(Checkpoint(session=live.session, at=at, error=error, inferred=True))

    def _keep(self, saved: Checkpoint) -> None:
        """Add a save. Beyond the bound remove the oldest that is as good: saves in doubt do not displace the last good
        one. The first of the newest failures and the save before it stay: they say since when saves fail."""
        self.checkpoints.add(saved)
        items = self.checkpoints.items
        if self._kept is None or len(items) <= self._kept:
            return
        alike = [index for index, each in enumerate(items) if _is_good(each) is _is_good(saved)]
        if len(alike) > self._kept:
            first = next((index + 1 for index in reversed(range(len(items))) if items[index].ok), 0)
            self.checkpoints.remove(next(index for index in alike if index not in (first - 1, first)))

    def absorb(self, later: SaveFold) -> None:
        """Add what a later file holds."""
        self.checkpoints.extend(later.checkpoints)
        has_succeeded = later.count > later.failures
        self.count += later.count
        self.failures += later.failures
        self.failures_in_a_row = later.failures_in_a_row + (0 if has_succeeded else self.failures_in_a_row)
        self.secs, self.blocked_secs = self.secs.merged(later.secs), self.blocked_secs.merged(later.blocked_secs)


def _is_good(saved: Checkpoint) -> bool:
    return saved.ok and saved.doubt is None


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


_DIGITS = re.compile(r"([0-9]+)")


_Span = TypeVar("_Span", ThreadSpan, WorkerSpan)


class _Spans(Generic[_Span]):
    """Spans in order, of which the last is not over.

    Args:
        kept: how many of the newest that are over are kept; None: all.
    """

    __slots__ = ("_kept", "items")

    def __init__(self, kept: int | None) -> None:
        self._kept = kept
        self.items: list[_Span] = []

    @property
    def until(self) -> float:
        return self.items[-1].until if self.items else 0.0

    def add(self, span: _Span, *, is_same: bool) -> None:
        """Add a span, or let it continue the last one."""
        last = self.items[-1] if self.items else None
        if last is None:
            self.items.append(span)
        elif is_same:
            self.items[-1] = replaced(span, since=last.since, until=max(last.until, span.until))
        else:
            self.items[-1] = replaced(last, until=max(span.since, last.since))
            self.items.append(replaced(span, since=max(span.since, last.until), until=max(span.until, last.until)))
            if self._kept is not None:
                del self.items[: -self._kept - 1]

    def ended(self, until: float) -> tuple[_Span, ...]:
        """Return the spans up to a time."""
        items = self.items[:]
        items[-1] = replaced(items[-1], until=max(until, self.until))
        return tuple(items)


class ThreadFold:
    """Collects the heartbeats' reports of one thread.

    Args:
        name: the thread's.
        kept_ticks: see `RunFold`.
    """

    __slots__ = ("_kept", "_last", "_spans", "_ticks", "name")

    def __init__(self, name: str, kept_ticks: int | None = None) -> None:
        self.name = name
        self._kept = kept_ticks
        self._spans: _Spans[ThreadSpan] = _Spans(kept_ticks)
        self._ticks: Sequence[ThreadTick] = ()
        self._last: ThreadStatus | None = None

    def beat(self, at: float, now: ThreadStatus) -> None:
        """Add what the heartbeat of wall time ``at`` says."""
        at = max(at, self._spans.until)
        before, self._last = self._last, now
        has_failed = now.state == "failed" or now.failures > (0 if before is None else before.failures)
        error = now.last_error if has_failed else None
        self._add(ThreadSpan(state=now.state, since=at, until=at, overdue_secs=now.overdue_secs, error=error))
        if now.last_tick_at is not None and (before is None or now.last_tick_at != before.last_tick_at):
            # A failure is recorded just before the end of its tick.
            begun_at = now.last_tick_at - (now.last_tick_secs or 0.0) - 1e-3
            ok = now.last_failure_at is None or not begun_at <= now.last_failure_at <= now.last_tick_at
            tick = ThreadTick(at=now.last_tick_at, secs=now.last_tick_secs, ok=ok)
            self._ticks = with_newest(self._ticks, (tick,), self._kept)

    def _add(self, span: ThreadSpan) -> None:
        last = self._spans.items[-1] if self._spans.items else None
        is_same = last is not None and last.state == span.state
        if is_same and last is not None:
            overdue_secs = max(last.overdue_secs, span.overdue_secs)
            span = replaced(span, overdue_secs=overdue_secs, error=span.error or last.error)
        self._spans.add(span, is_same=is_same)

    def absorb(self, later: ThreadFold) -> None:
        """Append what a later file of the same session holds."""
        for span in later._spans.items:
            self._add(span)
        known = None if self._last is None else self._last.last_tick_at
        self._ticks = with_newest(self._ticks, [tick for tick in later._ticks if tick.at != known], self._kept)
        self._last = later._last or self._last

    def history(self, session: str, until: float) -> ThreadHistory | None:
        """Return the thread's history up to a time; None before the first entry."""
        if self._last is None:
            return None
        spans = self._spans.ended(until)
        return ThreadHistory(**values_of(self._last), session=session, spans=spans, seen_ticks=tuple(self._ticks))


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker as one chief saw it."""

    history: WorkerHistory
    starts: frozenset[float]
    """Start times of its processes."""


class WorkerFold:
    """Collects the heartbeats' reports of one session on one worker.

    Args:
        name: the worker's.
        kept_spans: how many of its newest spans are kept; None: all.
    """

    __slots__ = ("_last", "_spans", "_starts", "name")

    def __init__(self, name: str, kept_spans: int | None = None) -> None:
        self.name = name
        self._spans: _Spans[WorkerSpan] = _Spans(kept_spans)
        self._starts: set[float] = set()
        self._last: WorkerStatus | None = None

    def beat(self, at: float, now: WorkerStatus) -> None:
        """Add what the heartbeat of wall time ``at`` says."""
        at = max(at, self._spans.until)
        self._add(WorkerSpan(state=now.state, since=at, until=at, started_at=now.started_at, error=now.error))
        self._last = now

    def _add(self, span: WorkerSpan) -> None:
        """Begin another span, unless state and process are unchanged."""
        last, is_same = self._spans.items[-1] if self._spans.items else None, False
        if span.started_at is not None:
            self._starts.add(span.started_at)
        if last is not None:
            is_same = last.state == span.state and (
                None in (span.started_at, last.started_at) or span.started_at == last.started_at
            )
            started_at = last.started_at if span.started_at is None else span.started_at
            span = replaced(span, started_at=started_at, error=span.error or (last.error if is_same else None))
        self._spans.add(span, is_same=is_same)

    def absorb(self, later: WorkerFold) -> None:
        """Append what a later file of the same session holds."""
        for span in later._spans.items:
            self._add(span)
        self._starts |= later._starts
        self._last = later._last or self._last

    def report(self, session: str, reported_at: float | None, until: float) -> WorkerReport | None:
        """Return the worker as the session saw it; None before the first entry.

        Args:
            session: the session's id.
            reported_at: when it last reported its workers; after a report without this one its state is unknown.
            until: when the session ended, or was last seen.
        """
        if self._last is None:
            return None
        is_in_last = reported_at is None or self._spans.until >= reported_at
        spans = self._spans.ended(until if is_in_last else 0.0)
        starts = max(1, len(self._starts))
        history = WorkerHistory(**values_of(self._last), spans=spans, starts=starts, session=session)
        return WorkerReport(history, frozenset(self._starts))


def merged_history(reports: Sequence[WorkerReport], kept_spans: int | None) -> WorkerHistory:
    """Return the history of a worker over the run's chiefs.

    Args:
        reports: one per chief, in order; at least one.
        kept_spans: how many of its newest spans are kept; None: all.
    """
    if len(reports) == 1:
        return reports[0].history
    newest = reports if kept_spans is None else reports[-max(1, kept_spans) :]  # each has at least one
    spans = [span for each in newest for span in each.history.spans]
    if any(after.since < before.since for before, after in pairwise(spans)):  # the chiefs' clocks disagree
        spans.sort(key=lambda span: span.since)
    if kept_spans is not None:
        del spans[: -max(1, kept_spans)]
    starts = set[float]().union(*(each.starts for each in reports))
    return replace(reports[-1].history, spans=tuple(spans), starts=max(1, len(starts)))


def natural_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key for the natural order of names: ``worker:2`` before ``worker:10``."""
    parts = _DIGITS.split(name)
    digits = [part.lstrip("0") if index % 2 else part for index, part in enumerate(parts)]
    return [(len(part) if index % 2 else 0, part) for index, part in enumerate(digits)], name


class SessionFold:
    """Collects one session's records. History is only appended to, so the cost of a record does not grow with it.

    Args:
        id: the session's.
        kept_ticks: see `RunFold`.
        allowance: bounds its history together with that of the other sessions of its run. Default: its own.
    """

    __slots__ = (
        "_records", "activity", "beats", "clock", "id", "is_stalled", "kept_ticks", "last_progress_at", "live_secs",
        "notices", "record", "resume_check", "saves", "stalls", "steps", "stop", "stop_at", "threads", "workers",
    )  # fmt: skip

    def __init__(self, id: str, kept_ticks: int | None = None, allowance: Allowance | None = None) -> None:
        allowance = allowance or Allowance()
        self.id = id
        self.kept_ticks = kept_ticks
        self.record: SessionRecord | None = None
        self.resume_check: ResumeRecord | None = None
        self.stop: StopRecord | None = None
        self.stop_at: float | None = None
        self.beats = BeatFold()
        self.clock = SessionClock()
        self.last_progress_at: float | None = None
        self.is_stalled = False
        self.live_secs: float | None = None
        """How often its liveness file is written, if that was read."""
        self.steps = StepFold(allowance)
        self.activity = ActivityFold(allowance)
        self.saves = SaveFold(allowance)
        self.stalls = StallFold(allowance)
        self.notices = NoticeFold(allowance)
        self.threads: Named[ThreadFold] = Named(allowance, "threads", MAX_THREADS, ThreadFold, kept_ticks)
        self.workers: Named[WorkerFold] = Named(allowance, "workers", MAX_WORKERS, WorkerFold, kept_ticks)
        self._records = 0

    @property
    def version(self) -> int:
        """Increases with each record, and whenever a bound dropped something."""
        return self._records + self.dropped_history

    @property
    def dropped_history(self) -> int:
        """Number of entries dropped beyond the bounds."""
        saves, silences = self.saves.checkpoints.dropped, self.activity.silences.dropped
        stalls = self.stalls.records.dropped + self.stalls.stacks.dropped
        named = self.threads.dropped + self.workers.dropped
        return saves + silences + stalls + named + self.steps.recoveries.dropped + self.notices.dropped

    @property
    def dropped_reports(self) -> int:
        """Number of reports of threads and workers beyond the bounds."""
        return self.threads.refused + self.workers.refused

    def add(self, mark: TelemetryMark) -> bool:
        """Add one record; return whether it shows that the wall clock was set since the one before."""
        self._records += 1
        at, record = mark.at, mark.record
        elapsed_secs = record.elapsed_secs if isinstance(record, (HeartbeatRecord, StopRecord)) else None
        was_set = self.clock.add(at, elapsed_secs)
        if was_set:
            self.last_progress_at = None
        if isinstance(record, HeartbeatRecord):
            self._beat(at, record, was_set)
        elif isinstance(record, CheckpointRecord):
            self.steps.reached(record.step)
            if self.saves.add(at, record, self.id):
                self._progressed(at)
        elif isinstance(record, SessionRecord):
            self.record = replaced(record, services=(), versions=_shared(tuple(record.versions.items())))
            self.steps.reached(record.restored_step)
        elif isinstance(record, StopRecord):
            self.stop, self.stop_at = replaced(record, activity_secs=NOTHING), at
            self._spent(at, record, record.step)
            self.steps.reached(record.step)
        elif isinstance(record, RecoveryRecord):
            self.steps.recovered(at, record)
        elif isinstance(record, ResumeRecord):
            self.resume_check = record
        elif isinstance(record, NoticeRecord):
            self.notices.add(at, record)
        elif isinstance(record, StallRecord):
            self.stalls.add(at, record)
            if record.service is None:
                self.is_stalled = record.state in ("begin", "lasts")
        return was_set

    def _beat(self, at: float, beat: HeartbeatRecord, clock_was_set: bool) -> None:
        step = self.steps.since_recovery(beat.step, beat.phase)
        self._spent(at, beat, step)
        self.beats.add(at, beat, self.activity.secs, clock_was_set=clock_was_set)
        self.steps.rate(beat.steps_per_sec)
        if step is not None and self.steps.first_report is None:
            self.steps.first_report = (step, beat.steps or 0)
        self.steps.reached(step)
        self._progressed(at - beat.progress_age_secs)
        self.is_stalled = is_hanging(beat)
        self.threads.touch()
        for status in beat.threads:
            if (thread := self.threads.get(status.name)) is not None:
                thread.beat(at, status)
        if beat.workers is not None:
            self.workers.touch()
            for name, each in {worker.name: worker for worker in beat.workers}.items():
                if (worker := self.workers.get(name)) is not None:
                    worker.beat(at, each)

    def _spent(self, at: float, record: HeartbeatRecord | StopRecord, step: int | None) -> None:
        if record.activity_secs:  # else it does not tell it in a way that can be read
            self.activity.add(at, record.activity_secs, record.pause if isinstance(record, HeartbeatRecord) else None)
            self.steps.productive(self.activity.secs.get("productive", 0.0), step)

    def _progressed(self, at: float | None) -> None:
        if at is not None and (self.last_progress_at is None or at > self.last_progress_at):
            self.last_progress_at = at

    def absorb(self, later: SessionFold) -> None:
        """Add what a later file of the same session holds."""
        if later.clock.last_at is None:
            return
        if self.clock.absorb(later.clock):
            self.last_progress_at = None
        self.record = self.record or later.record
        self.resume_check = later.resume_check or self.resume_check
        self.stop, self.stop_at = (later.stop, later.stop_at) if later.stop else (self.stop, self.stop_at)
        self.is_stalled = later.is_stalled
        self._progressed(later.last_progress_at)
        self.beats.absorb(later.beats)
        self.activity.absorb(later.activity)
        self.steps.absorb(later.steps)
        self.saves.absorb(later.saves)
        self.stalls.absorb(later.stalls)
        self.notices.absorb(later.notices)
        for name, thread in later.threads.by_name.items():
            if (whole_thread := self.threads.get(name)) is not None:
                whole_thread.absorb(thread)
        for name, worker in later.workers.by_name.items():
            if (whole_worker := self.workers.get(name)) is not None:
                whole_worker.absorb(worker)


@lru_cache(maxsize=256)
def _shared(versions: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the same object for equal versions: those of a fleet's runs hardly differ."""
    return dict(versions)


@dataclass(slots=True)
class BeatFold:
    """A session's heartbeats: the first, the last, and how often they come."""

    attempt: int | None = None
    begun_at: float | None = None
    """The session's start, calculated from its first heartbeat."""
    newest: HeartbeatRecord | None = None
    """With its long fields, until `last` is asked for."""
    last_at: float | None = None
    longest_secs: float | None = None
    """The longest time between two heartbeats of one phase."""
    workers_at: float | None = None
    """When the other processes of the cluster were last reported."""
    _is_short: bool = False

    @property
    def last(self) -> HeartbeatRecord | None:
        """The newest, without its long fields."""
        if self.newest is not None and not self._is_short:
            self.newest = replaced(self.newest, threads=(), workers=None, activity_secs=NOTHING, pause=None)
            self._is_short = True
        return self.newest

    def add(self, at: float, beat: HeartbeatRecord, spent_secs: Mapping[str, float], *, clock_was_set: bool) -> None:
        """Add a heartbeat.

        Args:
            at: its wall time.
            beat: the record.
            spent_secs: the seconds that the session has reported so far, by bucket.
            clock_was_set: whether the wall clock was set since the last one.
        """
        self.attempt = beat.attempt if self.attempt is None else self.attempt
        if self.newest is None or self.last_at is None:
            # Seconds after the last progress are reported only after they have become a stall.
            open_secs = 0.0 if is_hanging(beat) else beat.progress_age_secs
            self.begun_at = at - open_secs - sum(spent_secs.values())
        elif beat.phase == self.newest.phase and not clock_was_set:
            self.longest_secs = max(self.longest_secs or 0.0, at - self.last_at)
        self.newest, self.last_at, self._is_short = beat, at, False
        if beat.workers is not None:
            self.workers_at = at

    def absorb(self, later: BeatFold) -> None:
        """Add those of a later file."""
        self.attempt = later.attempt if self.attempt is None else self.attempt
        self.begun_at = later.begun_at if self.begun_at is None else self.begun_at
        if later.newest is not None:
            self.newest, self.last_at, self._is_short = later.newest, later.last_at, later._is_short
        if later.longest_secs is not None:
            self.longest_secs = max(self.longest_secs or 0.0, later.longest_secs)
        self.workers_at = self.workers_at if later.workers_at is None else later.workers_at


def is_hanging(beat: HeartbeatRecord) -> bool:
    """Return whether a heartbeat reports no progress for longer than the hang timeout."""
    return beat.progress_timeout_secs is not None and beat.progress_age_secs > beat.progress_timeout_secs


def merged_session(parts: Iterable[SessionFold]) -> SessionFold:
    """Return one session from its parts in several files, given in order; a single part is returned as it is."""
    first, *later = parts
    if not later:
        return first
    merged = SessionFold(first.id, first.kept_ticks)
    for part in (first, *later):
        merged.absorb(part)
    return merged


def with_liveness(fold: SessionFold, live: LivenessRecord) -> SessionFold:
    """Return a session with what its liveness file has beyond its records: later ones, and what could not be recorded.

    Args:
        fold: the session; it stays as it is.
        live: the file. Its end counts unless the session has written records since then.
    """
    goes_on = (fold.clock.last_at or 0.0) > (live.ended_at or live.written_at) + CLOCK_SET_SECS
    records = [
        (at, _with_activity(fold, at, record) if isinstance(record, HeartbeatRecord) else record)
        for at, record in live.records
        if not (goes_on and isinstance(record, StopRecord))
    ]
    found = with_records(fold, records)
    found.live_secs = live.interval_secs
    if found.stop is None:
        found.clock.add(live.written_at, None)
    if live.save_failures >= found.saves.failures:
        interval_secs = None if found.record is None else found.record.checkpoint_interval_secs
        found.saves.add_unrecorded(live, found.clock.begun_at or live.started_at, interval_secs)
    return found


def _with_activity(fold: SessionFold, at: float, beat: HeartbeatRecord) -> HeartbeatRecord:
    """Return a heartbeat that does not say where its time went, as that of a progress page, with its seconds since the
    session's last report: until its last progress spent on steps, if it has done some; since then in its phase, or its
    stall."""
    began = fold.clock.begun_at or (fold.record.started_at if fold.record else None) or fold.beats.begun_at
    secs = dict(fold.activity.secs)
    rest = 0.0 if began is None else at - began - sum(secs.values())
    if beat.activity_secs or rest <= 0:
        return beat
    idle, before = min(rest, beat.progress_age_secs), fold.beats.last
    reached = fold.steps.last_step
    has_trained = beat.step is not None and reached is not None and beat.step > reached
    earlier = "training" if has_trained else beat.phase if before is None else before.phase
    now_in = STALL if is_hanging(beat) else BUCKET_OF_PHASE.get(beat.phase or "", "other")
    for bucket, more in ((BUCKET_OF_PHASE.get(earlier or "", "other"), rest - idle), (now_in, idle)):
        secs[bucket] = secs.get(bucket, 0.0) + more
    return replaced(beat, activity_secs=secs)


def with_last_beat(fold: SessionFold, death: DeathRecord) -> SessionFold:
    """Return a dead session with its last heartbeat; it stays as it is."""
    began = fold.clock.begun_at or (fold.record.started_at if fold.record else None) or fold.beats.begun_at
    if death.beat is None or death.beat.elapsed_secs is None or began is None:
        return fold
    return with_records(fold, [(began + death.beat.elapsed_secs, death.beat)])


def with_records(fold: SessionFold, records: Iterable[tuple[float, Record]]) -> SessionFold:
    """Return a session with later records, given with their times, as far as they are news; it stays as it is."""
    found = merged_session((fold, SessionFold(fold.id)))
    for at, record in records:
        if found.stop is None and _is_newer(record, at, found):
            found.add(TelemetryMark(offset=0, at=at, step=0, record=record))
    return found


def _is_newer(record: Record, at: float, fold: SessionFold) -> bool:
    last = fold.beats.last
    if isinstance(record, HeartbeatRecord) and last is not None:
        if record.elapsed_secs is not None and last.elapsed_secs is not None:
            return record.elapsed_secs > last.elapsed_secs
        return at > (fold.clock.last_at or 0.0)
    return True
