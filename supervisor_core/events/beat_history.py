"""`BeatHistoryFold`: decides which heartbeats the next one sums up, see `supervisor_core.events.heartbeat_parts`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from supervisor_core.events.heartbeat_parts import (
    CALM,
    MOST_ERROR_SECS,
    BeatHistory,
    BeatPhase,
    CalmState,
    ThreadBeats,
    ThreadStretch,
)
from supervisor_core.events.place import Pace
from supervisor_core.events.polyline import Polyline
from supervisor_core.events.telemetry import HeartbeatRecord, PauseReport, ThreadStatus

MOST_BEATS = 360
"""An hour, at the default interval."""
LEAST_BEATS = 8
"""A shorter history would cost a reader more than it saves."""
FULL_EVERY = 30
"""All service threads are in every thirtieth heartbeat, in others those that have changed."""

_PHASES = ("training", "checkpointing", "evaluating")
_LEAST_ERROR_SECS = 0.05
_CLOCK_SECS = 1.0
"""The wall clock was not set if it moved by less than this against the monotonic one."""


class BeatHistoryFold:
    """Takes the heartbeats of a session in their order. Not thread-safe.

    A heartbeat is covered by a later one's history if nothing but time, steps, calm phases and good ticks
    differs from the one before. Any other heartbeat, and one after `MOST_BEATS`, has the history of those before it,
    and is covered by none.
    """

    def __init__(self) -> None:
        self._last: HeartbeatRecord | None = None
        self._start_by_wall = 0.0
        self._beats = _Columns()
        self._written: dict[str, ThreadStatus] = {}
        """The threads, as they were last written."""

    def reset(self) -> None:
        """Begin again: what was written is not what heartbeats alone can say."""
        self._last, self._beats = None, _Columns()

    def ends_with(self, beat: HeartbeatRecord, at: float, *, workers_changed: bool) -> bool:
        """Return whether a heartbeat is covered by no later history: then it must say everything, workers included.

        Args:
            beat: the heartbeat, with all threads.
            at: its wall time.
            workers_changed: whether a worker is in another state than before.
        """
        return workers_changed or self._beats.count >= MOST_BEATS or not self._is_ordinary(beat, at)

    def add(self, beat: HeartbeatRecord, at: float, *, ends: bool) -> HeartbeatRecord:
        """Take a heartbeat; return what to write of it.

        Args:
            beat: the heartbeat, with all threads.
            at: its wall time.
            ends: what `ends_with` said.
        """
        history = self._beats.history() if ends and self._beats.count >= LEAST_BEATS else None
        is_full = ends or self._beats.count % FULL_EVERY == 0
        short = replace(beat, history=history, threads=beat.threads if is_full else self._changed(beat.threads))
        if ends:
            self._beats = _Columns()
        else:
            self._beats.add(beat)
        self._last, self._start_by_wall = beat, at - (beat.elapsed_secs or 0.0)
        self._written.update({thread.name: thread for thread in short.threads})
        return short

    def _changed(self, threads: Sequence[ThreadStatus]) -> tuple[ThreadStatus, ...]:
        return tuple(each for each in threads if self._written.get(each.name) != each)

    def _is_ordinary(self, beat: HeartbeatRecord, at: float) -> bool:
        before = self._last
        return (
            before is not None
            and beat.phase in _PHASES
            and _is_later(beat.elapsed_secs, before.elapsed_secs)
            and abs(at - (beat.elapsed_secs or 0.0) - self._start_by_wall) < _CLOCK_SECS
            and beat.step is not None
            and before.step is not None
            and beat.step >= before.step
            and beat.steps_per_sec is not None
            and beat.pause is None
            and (beat.progress_timeout_secs is None or beat.progress_age_secs <= beat.progress_timeout_secs)
            and events_of(beat) == events_of(before)
            and len(beat.threads) == len(before.threads)
            and all(map(_is_calm, beat.threads, before.threads))
        )


def _is_later(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one > other


def events_of(beat: HeartbeatRecord) -> tuple[object, ...]:
    """Return what does not change between the first and the last heartbeat that a history covers."""
    secs = beat.activity_secs.get("stall"), beat.activity_secs.get("silent")
    return (*secs, beat.attempt, beat.loss_finite, beat.events_dropped, beat.watchdog_would_act, beat.watchdog_acted)


def _is_calm(now: ThreadStatus, before: ThreadStatus) -> bool:
    return (
        now.name == before.name
        and now.state in CALM
        and now.failures == before.failures
        and now.last_failure_at == before.last_failure_at
        and (now.last_tick_at is None) == (now.last_tick_secs is None)
    )


def rounded(
    beat: HeartbeatRecord, threads: Iterable[ThreadStatus], *, pace: Pace | None, pause: PauseReport | None
) -> HeartbeatRecord:
    """Return a heartbeat with its long fields, its numbers no longer than what they are good for."""
    return replace(
        beat,
        elapsed_secs=short(beat.elapsed_secs),
        steps_per_sec=short(beat.steps_per_sec, 6),
        progress_age_secs=short(beat.progress_age_secs),
        progress_timeout_secs=short(beat.progress_timeout_secs),
        activity_secs={name: short(secs) for name, secs in beat.activity_secs.items()},
        threads=tuple(map(_short_thread, threads)),
        pace=pace,
        pause=pause,
    )


def _short_thread(thread: ThreadStatus) -> ThreadStatus:
    return replace(
        thread,
        last_tick_at=short(thread.last_tick_at, 4),
        last_tick_secs=short(thread.last_tick_secs, 6),
        overdue_secs=short(thread.overdue_secs),
        last_failure_at=short(thread.last_failure_at, 4),
        ticking_secs=short(thread.ticking_secs),
    )


_Number = TypeVar("_Number", float, "float | None")


def short(number: _Number, decimals: int = 3) -> _Number:
    """Return a number rounded to some decimals; a small one to six significant digits, so that it does not become 0.

    Example:
        >>> short(86409.162663), short(0.0003123456789)
        (86409.163, 0.000312346)
    """
    if number is None or not math.isfinite(number):
        return number
    return float(f"{number:.6g}") if abs(number) < 100.0 else round(number, decimals)


class _Columns:
    """Consecutive heartbeats, column by column."""

    def __init__(self) -> None:
        self.count = 0
        self._first_elapsed_secs = self._last_elapsed_secs = 0.0
        self._phases: list[BeatPhase] = []
        self._rates: list[float] = []
        self._productive = Polyline(MOST_ERROR_SECS)
        self._steps: dict[int, int] = {}
        """The number of the first heartbeat of each step."""
        self._threads: dict[str, _Thread] = {}

    def add(self, beat: HeartbeatRecord) -> None:
        number, phase = self.count, beat.phase or ""
        self.count += 1
        self._last_elapsed_secs = beat.elapsed_secs or 0.0
        if not number:
            self._first_elapsed_secs = self._last_elapsed_secs
            two_steps_secs = 2.0 / beat.steps_per_sec if beat.steps_per_sec else MOST_ERROR_SECS
            self._productive.error = round(min(MOST_ERROR_SECS, max(_LEAST_ERROR_SECS, two_steps_secs)), 3)
        if not self._phases or self._phases[-1].phase != phase:
            self._phases.append(BeatPhase(beat=number, phase=phase))
        self._rates.append(beat.steps_per_sec or 0.0)
        step = beat.step or 0
        if step not in self._steps:
            self._steps[step] = number
            self._productive.add(step, beat.activity_secs.get("productive", 0.0))
        for status in beat.threads:
            self._threads.setdefault(status.name, _Thread()).add(number, status)

    def history(self) -> BeatHistory:
        points = [(self._steps[step], secs) for step, secs in self._productive.points()]
        return BeatHistory(
            beats=self.count,
            first_elapsed_secs=self._first_elapsed_secs,
            last_elapsed_secs=self._last_elapsed_secs,
            phases=tuple(self._phases),
            rates=tuple(self._rates),
            productive_beats=tuple(number for number, _ in points),
            productive_secs=tuple(secs for _, secs in points),
            productive_error_secs=self._productive.error,
            threads=tuple(thread.beats(name) for name, thread in self._threads.items()),
        )


class _Thread:
    def __init__(self) -> None:
        self._states: list[ThreadStretch] = []
        self._last_tick_at: float | None = None
        self._ticks: list[tuple[float, float]] = []

    def add(self, number: int, status: ThreadStatus) -> None:
        state: CalmState = status.state  # type: ignore[assignment]  # `_is_calm`
        if not self._states or self._states[-1].state != state:
            self._states.append(ThreadStretch(beat=number, state=state, overdue_secs=status.overdue_secs))
        elif status.overdue_secs > self._states[-1].overdue_secs:
            self._states[-1] = replace(self._states[-1], overdue_secs=status.overdue_secs)
        tick_at = status.last_tick_at
        if number and tick_at is not None and tick_at != self._last_tick_at:
            self._ticks.append((tick_at, status.last_tick_secs or 0.0))
        self._last_tick_at = tick_at

    def beats(self, name: str) -> ThreadBeats:
        return ThreadBeats(
            name=name,
            states=tuple(self._states),
            tick_at=tuple(at for at, _ in self._ticks),
            tick_secs=tuple(secs for _, secs in self._ticks),
        )
