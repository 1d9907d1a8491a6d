"""`FileFold`: what one events file shows, chunk by chunk; `totals`: the same over the files of a run."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.chunk import Chunk, Points, TelemetryMark
from supervisor_core.events.hparams import HParam
from supervisor_core.events.losses import ACCURACY, LOSS, prominence
from supervisor_core.events.telemetry import DeathRecord, HeartbeatRecord, LaunchRecord, RecoveryRecord
from supervisor_core.run.fold.bounds import (
    MAX_SESSIONS_OF_FILE,
    Allowance,
    DroppedKind,
    Newest,
)
from supervisor_core.run.fold.other_writers import Cadence, Launches
from supervisor_core.run.fold.restarter_launches import LaunchFold
from supervisor_core.run.fold.session_fold import NOTHING, SessionFold, chars_of_stacks
from supervisor_core.run.model.rate_history import RateHistory
from supervisor_core.run.model.run import NonFinite, TagValues, TotalsOfFiles

RESTARTER_SUFFIX = ".restarter"
"""How the names of the events files end that a restarter writes."""


class FileFold:
    """Collects one file's events.

    Args:
        path: the file's.
        kept_ticks: see `RunFold`.
        allowance: bounds its history together with that of the other files of its run.
    """

    __slots__ = (
        "_allowance",
        "_beyond_bounds",
        "_kept_ticks",
        "ahead_secs",
        "cadence",
        "created_at",
        "deaths",
        "first_at",
        "first_step",
        "hparams",
        "last_at",
        "last_points",
        "last_step",
        "last_steps",
        "launches",
        "losses",
        "max_step",
        "nonfinite",
        "path",
        "rates",
        "restarter_launches",
        "session_logs",
        "sessions",
        "speed",
        "start_step",
        "tags",
        "tail",
        "version",
    )  # fmt: skip

    def __init__(self, path: str, kept_ticks: int | None = None, allowance: Allowance | None = None) -> None:
        self.path = path
        self._kept_ticks = kept_ticks
        self._allowance = allowance or Allowance()
        self._beyond_bounds: Mapping[DroppedKind, int] = NOTHING
        self.version = 0
        """Rises with each chunk."""
        self.ahead_secs = 0.0
        """By how much its writer's clock was ahead of that of the run's newest writer, if it has no telemetry."""
        self.created_at: float | None = None
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.max_step: int | None = None
        self.nonfinite: dict[str, NonFinite] = {}
        """By tag, for tags with NaN or infinite values."""
        self.losses: dict[str, LossTail] = {}
        """By tag, of those that are named as a loss."""
        self.session_logs: Mapping[str, int] = NOTHING
        self.start_step: int | None = None
        """Of its first START."""
        self.hparams: Mapping[str, HParam] = NOTHING
        """Those that were written last."""
        self.tags: dict[str, int] = {}
        """Each with its place in the columns of last points."""
        self.last_steps, self.last_points = array("q"), array("d")
        """Of each tag the step and the value of its last point."""
        self.sessions: dict[str, SessionFold] = {}
        """The sessions with telemetry in it, by latest record."""
        self.restarter_launches = LaunchFold(self._allowance)
        """Of a file that a restarter wrote: nothing but these and deaths counts in it."""
        self.deaths: Newest[tuple[DeathRecord, float]] = Newest(self._allowance, "deaths", _chars_of_death)
        """Of earlier sessions, each with the wall time at which it was recorded."""
        self.tail = StepTail()
        self.rates = RateTail() if kept_ticks is None else None
        self.speed = RateHistory()
        self.launches = Launches(self._allowance)
        """Not updated any more once a session has telemetry, likewise `cadence`."""
        self.cadence = Cadence()

    @property
    def order(self) -> tuple[float, str]:
        """The sort key of a run's files."""
        at = self.created_at if self.created_at is not None else self.first_at
        return (at - self.ahead_secs if at is not None else 0.0, self.path)

    @property
    def newest_loss(self) -> tuple[float, int]:
        """Wall time and step of the newest value of a loss: orders the files of one inferred session."""
        at, step = max((tail.newest for tail in self.losses.values()), default=(0.0, 0))
        return at - self.ahead_secs, step

    @property
    def last_session(self) -> str | None:
        """Id of the session with the latest telemetry."""
        return next(reversed(self.sessions), None)

    @property
    def dropped(self) -> Counter[DroppedKind]:
        """Items dropped beyond the bounds, by kind."""
        found = self.launches.dropped + Counter(self._beyond_bounds)
        found["history"] += self.restarter_launches.dropped + self.deaths.dropped
        for session in self.sessions.values():
            found["history"] += session.dropped_history
            found["events"] += session.dropped_reports
        return +found

    def give_back(self) -> None:
        """Return what this file counts of the allowance to the run. Its history is the oldest, so the first that is
        dropped."""
        self._allowance.tags += len(self.tags)
        self._allowance.sessions += len(self.sessions)
        self._allowance.followed_tags += self.launches.followed_tags
        self._allowance.curves += sum(len(session.steps.curves) - 1 for session in self.sessions.values())

    def add(self, chunk: Chunk) -> None:
        """Add the next events of the file."""
        self.version += 1
        if self._add_launches(chunk):
            return
        chunk = self._allowed(chunk)
        self.created_at = chunk.created_at if self.created_at is None else self.created_at
        self.first_at = chunk.first_at if self.first_at is None else self.first_at
        self.first_step = chunk.first_step if self.first_step is None else self.first_step
        self.last_step = self.last_step if chunk.last_step is None else chunk.last_step
        if chunk.max_step is not None:
            self.max_step = chunk.max_step if self.max_step is None else max(self.max_step, chunk.max_step)
        beats: list[tuple[int, int | None]] = []
        clock_set: int | None = None
        for mark in chunk.marks:
            if isinstance(mark, TelemetryMark):
                if self._telemetry(mark, beats):
                    clock_set = mark.offset
                continue
            self.session_logs = {**self.session_logs, mark.status: self.session_logs.get(mark.status, 0) + 1}
            if mark.status == "START" and self.start_step is None:
                self.start_step = mark.step
        self._update_last_at(chunk, clock_set)
        self.hparams = chunk.hparams or self.hparams
        if self.rates is not None:
            self.rates.add(chunk.scalars.get(RATE_TAG))
        for tag, points in chunk.scalars.items():
            self._nonfinite(tag, points)
            if tag not in self.tags and LOSS.search(tag):
                self.losses[tag] = LossTail()
            if tag in self.losses:
                self.losses[tag] = self.losses[tag].followed_by(points)
            place = self.tags.setdefault(tag, len(self.tags))
            if place == len(self.last_steps):
                self.last_steps.append(0)
                self.last_points.append(0.0)
            self.last_steps[place], self.last_points[place] = int(points.steps[-1]), float(points.values[-1])
        self.tail.add(chunk.scalars, beats)
        if not self.sessions:
            self.launches.add(chunk)
            self.cadence.add(chunk.scalars)

    @property
    def is_of_restarter(self) -> bool:
        """Whether it holds launches of the program, deaths of its sessions, and nothing else."""
        found = self.restarter_launches.total + self.deaths.total
        return found > 0 and not (self.sessions or self.tags or self.session_logs)

    def _add_launches(self, chunk: Chunk) -> bool:
        """Add the launches and the deaths in a chunk; return whether it is a restarter's, which holds nothing else. A
        session's file may begin with deaths, too."""
        others = 0
        for mark in chunk.marks:
            if isinstance(mark, TelemetryMark) and isinstance(mark.record, LaunchRecord):
                self.restarter_launches.add(mark, mark.record)
            elif isinstance(mark, TelemetryMark) and isinstance(mark.record, DeathRecord):
                self.deaths.add((mark.record, mark.at))
            else:
                others += 1
        is_restarters = self.restarter_launches.total > 0 or self.path.endswith(RESTARTER_SUFFIX)
        return is_restarters and self.is_of_restarter and not (others or chunk.scalars)

    def _nonfinite(self, tag: str, points: Points) -> None:
        steps = points.steps[~np.isfinite(points.values)]
        if len(steps):
            new = NonFinite(tag=tag, values=len(steps), first_step=int(steps.min()), last_step=int(steps.max()))
            self.nonfinite[tag] = self.nonfinite[tag].merged(new) if tag in self.nonfinite else new

    def _allowed(self, chunk: Chunk) -> Chunk:
        """Return a chunk without the tags beyond the run's bound."""
        new = chunk.scalars.keys() - self.tags.keys()
        if len(new) <= self._allowance.tags:
            self._allowance.tags -= len(new)
            return chunk
        scalars = {}
        for tag, points in chunk.scalars.items():
            if tag not in self.tags:
                if not self._allowance.tags:
                    self._drop("events", len(points))
                    continue
                self._allowance.tags -= 1
            scalars[tag] = points
        return replace(chunk, scalars=scalars)

    def _drop(self, kind: DroppedKind, count: int) -> None:
        self._beyond_bounds = {**self._beyond_bounds, kind: self._beyond_bounds.get(kind, 0) + count}

    def _update_last_at(self, chunk: Chunk, clock_set: int | None) -> None:
        """Update the latest wall time. Events before a change of the clock do not count."""
        last = chunk.last_at
        if clock_set is not None:
            self.last_at = None
            marks = [mark.at for mark in chunk.marks if mark.offset >= clock_set]
            points = [points.walls[points.offsets >= clock_set] for points in chunk.scalars.values()]
            last = max([*marks, *(float(np.fmax.reduce(walls)) for walls in points if len(walls))])
        if last is not None:
            self.last_at = last if self.last_at is None else max(self.last_at, last)

    def _telemetry(self, mark: TelemetryMark, beats: list[tuple[int, int | None]]) -> bool:
        """Add a record; return whether it shows that the wall clock was set."""
        if isinstance(mark.record, (LaunchRecord, DeathRecord)):
            return False
        id = mark.record.session
        if id not in self.sessions:
            if not self._allowance.sessions or len(self.sessions) >= MAX_SESSIONS_OF_FILE:
                self._drop("sessions", 1)
                return False
            self._allowance.sessions -= 1
        if id != self.last_session:
            beats.append((mark.offset, None))
            known = self.sessions.pop(id, None)
            self.sessions[id] = known or SessionFold(id, self._kept_ticks, self._allowance)
        clock_was_set = self.sessions[id].add(mark)
        if isinstance(mark.record, HeartbeatRecord):
            if self.rates is not None:
                self.rates.add_heartbeat(mark.record.steps_per_sec)
            if mark.record.steps_per_sec is not None and mark.record.phase == "training":
                self.speed.add(mark.at, mark.record.steps_per_sec)
            if (step := mark.record.step) is not None:
                beats.append((mark.offset, step))
        elif isinstance(mark.record, RecoveryRecord):  # the scalars before it may be of steps that are repeated
            beats.append((mark.offset, None))
        return clock_was_set


def _chars_of_death(recorded: tuple[DeathRecord, float]) -> int:
    stall = recorded[0].stall
    return 0 if stall is None else chars_of_stacks(stall.stacks)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTotals(TotalsOfFiles):
    """`TotalsOfFiles` by themselves, without a run."""


_NO_LOGS: Mapping[str, int] = {"START": 0, "CHECKPOINT": 0, "STOP": 0}
MAX_LAST_VALUES = 20
"""Of one run."""


@lru_cache(maxsize=4096)
def _is_shown(tag: str) -> bool:
    return LOSS.search(tag) is not None or ACCURACY.search(tag) is not None


def totals(files: Iterable[FileFold], earlier: Collection[str] = ()) -> FileTotals:
    """Return the sums over files.

    Args:
        files: in their order.
        earlier: paths of those that only earlier sessions wrote; the wall clock may have been set since, so their last
            event does not count.
    """
    files = tuple(files)
    points = {tag: (file.last_steps[at], file.last_points[at]) for file in files for tag, at in file.tags.items()}
    tags = tuple(sorted(points))
    steps, values = array("q", [points[tag][0] for tag in tags]), array("d", [points[tag][1] for tag in tags])
    tag_values = TagValues(tags, steps, values)
    shown = sorted(filter(_is_shown, tags), key=prominence)[:MAX_LAST_VALUES]
    logs = Counter(_NO_LOGS)
    nonfinite: dict[str, NonFinite] = {}
    for file in files:
        logs.update(file.session_logs)
        for tag, found in file.nonfinite.items():
            nonfinite[tag] = nonfinite[tag].merged(found) if tag in nonfinite else found
    seen = [file.last_at - file.ahead_secs for file in files if file.path not in earlier and file.last_at is not None]
    return FileTotals(
        first_step=next((file.first_step for file in files if file.first_step is not None), None),
        last_step=next((file.last_step for file in reversed(files) if file.last_step is not None), None),
        max_step=max((file.max_step for file in files if file.max_step is not None), default=None),
        last_event_at=max(seen, default=None),
        session_logs=dict(logs) if any(logs.values()) else _NO_LOGS,
        scalar_tags=len(tags),
        nonfinite_tags=tuple(nonfinite[tag] for tag in sorted(nonfinite)),
        hparams=next((file.hparams for file in reversed(files) if file.hparams), {}),
        last_values=tuple(value for tag in shown if (value := tag_values.of(tag)) is not None),
        tag_values=tag_values,
        rates=latest_rates([file.rates for file in files if file.rates is not None]),
    )


_UNBOUNDED = (1 << 63) - 1
_EARLY_STEPS = 1
"""A step's scalars may be written before the step is counted."""


class Reached(NamedTuple):
    """A step, and the wall time of a scalar of it."""

    step: int
    at: float


class LossTail(NamedTuple):
    """The newest values of a loss in one file."""

    since: Reached | None = None
    """The first value since the last finite one; None if the newest value is finite."""
    is_whole: bool = True
    """Whether no value before that is finite: the file before may know an earlier one."""
    newest: tuple[float, int] = (0.0, 0)
    """Wall time and step of the newest value."""

    def followed_by(self, points: Points) -> LossTail:
        """Return the tail after more points."""
        finite = np.flatnonzero(np.isfinite(points.values))
        after = int(finite[-1]) + 1 if len(finite) else 0
        newest = float(points.walls[-1]), int(points.steps[-1])
        if after == len(points):
            return LossTail(None, is_whole=False, newest=newest)
        first = Reached(int(points.steps[after]), float(points.walls[after]))
        since, is_whole = first if after or self.since is None else self.since, self.is_whole and not after
        return LossTail(since, is_whole, newest)


def nonfinite_since(files: Sequence[FileFold], tags: Iterable[str]) -> Reached | None:
    """Return the first value since which one of these losses has had no finite one; None without one.

    Args:
        files: in their order.
        tags: the losses whose newest values are not finite.
    """
    found = []
    for tag in tags:
        for file in reversed(files):
            tail = file.losses.get(tag)
            if tail is None:
                continue
            if tail.since is not None:
                found.append(tail.since._replace(at=tail.since.at - file.ahead_secs))
            if tail.since is None or not tail.is_whole:
                break
    return min(found, default=None)


class StepTail:
    """Keeps, per tag, the highest step since the last heartbeat with a step.

    A tag may count something else than steps (examples, epochs): one that was ever ahead of the next heartbeat's step
    is ignored.
    """

    __slots__ = ("_foreign", "_highest")

    def __init__(self) -> None:
        self._highest: dict[str, Reached] | None = None
        self._foreign: set[str] | None = None

    @property
    def reached(self) -> Reached | None:
        """The highest step since the last heartbeat; None without one."""
        return max((self._highest or {}).values(), key=lambda reached: (reached.step, -reached.at), default=None)

    def add(self, scalars: Mapping[str, Points], beats: Sequence[tuple[int, int | None]]) -> None:
        """Add new points.

        Args:
            scalars: by tag, each in the order of the file.
            beats: offset and step of the heartbeats among them, likewise; a step of None only clears the steps so far.
        """
        if beats:
            before, self._highest = self._highest or {}, None
            self._leave_out(tag for tag, highest in before.items() if _is_ahead(highest.step, beats[0][1]))
        offsets = np.array([at for at, _ in beats], np.int64)
        most = np.array([_UNBOUNDED if step is None else step + _EARLY_STEPS for _, step in beats], np.int64)
        for tag, points in scalars.items():
            if tag not in (self._foreign or ()) and len(points):
                self._add(tag, points, offsets, most)

    def _add(self, tag: str, points: Points, offsets: NDArray[np.int64], most: NDArray[np.int64]) -> None:
        """Add the points of one tag; ``most``: the highest steps with which they are not ahead of these heartbeats."""
        start = 0
        if len(offsets):
            start = int(points.offsets.searchsorted(offsets[-1]))
            following = offsets.searchsorted(points.offsets[:start], "right")
            if (points.steps[:start] > most[following]).any():
                self._leave_out([tag])
                return
        if start < len(points):
            first = start + int(points.steps[start:].argmax())
            highest = Reached(int(points.steps[first]), float(points.walls[first]))
            known = self._highest = self._highest or {}
            if tag not in known or highest.step > known[tag].step:
                known[tag] = highest

    def _leave_out(self, tags: Iterable[str]) -> None:
        if found := set(tags):
            self._foreign = found | (self._foreign or set())


def _is_ahead(highest: int, step: int | None) -> bool:
    return step is not None and highest > step + _EARLY_STEPS


READINGS = 60
"""Number of readings kept per run."""
RATE_TAG = "global_step/sec"
"""The tag of TensorFlow's supervisor, hooks and estimators, and of this project."""


class RateTail:
    """The latest readings of steps per second in one file. Readings of heartbeats replace those of summaries."""

    __slots__ = ("_heartbeats", "_summaries")

    def __init__(self) -> None:
        self._heartbeats, self._summaries = array("d"), array("d")

    def add_heartbeat(self, rate: float | None) -> None:
        """Add the reading of a heartbeat."""
        if rate is not None:
            self._heartbeats.append(rate)
            if len(self._heartbeats) > 2 * READINGS:
                del self._heartbeats[:-READINGS]

    def add(self, points: Points | None) -> None:
        """Add new summaries of `RATE_TAG`."""
        if points is not None:
            self._summaries.extend(rate for rate in points.values[-READINGS:].tolist() if math.isfinite(rate))
            del self._summaries[:-READINGS]

    @property
    def readings(self) -> tuple[float, ...]:
        """The readings, oldest first."""
        return tuple((self._heartbeats or self._summaries)[-READINGS:])


def latest_rates(tails: Sequence[RateTail]) -> tuple[float, ...]:
    """Return the latest readings of several files, given in order."""
    found: tuple[float, ...] = ()
    for tail in reversed(tails):
        found = tail.readings + found
        if len(found) >= READINGS:
            break
    return found[-READINGS:]
