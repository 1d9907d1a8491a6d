"""`BeatQueue`: heartbeats that are not decoded yet, since a later one may say what they amount to.

A reader that has much to read finds such a heartbeat (`BeatHistory`) after those that it covers. They are then not
decoded, but for three: the first, the last and one between them, which the history must agree with. So must the
walls and steps of all of them, which are in front of their JSON. Otherwise all are decoded, and the history is ignored:
one that was torn, mixed up or made up changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from supervisor_core.events.beat_history import events_of
from supervisor_core.events.chunk import CoveredBeats, TelemetryMark
from supervisor_core.events.heartbeat_parts import CALM, MOST_ERROR_SECS, BeatHistory, ThreadBeats
from supervisor_core.events.record_fields import replaced
from supervisor_core.events.telemetry import HeartbeatRecord

MOST_BEATS = 4_096
MOST_BYTES = 4 << 20
"""Of a queue: beyond either, its older half is decoded."""
_HEAD = '{"v": 1, "session": "'
HISTORY = ', "history": {'
"""What follows `session_part` in a heartbeat that covers others."""
_ROUNDING = 2e-3
"""Numbers of heartbeats have three decimals."""
_CLOCK_SECS = 2.0
_LEAST_BEATS = 3


def session_part(text: str) -> str | None:
    """Return the beginning of a record's JSON up to the end of its session, as our writer lays it out; None where it is
    laid out otherwise."""
    if not text.startswith(_HEAD):
        return None
    end = text.find('"', len(_HEAD))
    return None if end < 0 or "\\" in text[:end] else text[: end + 1]


Taken = tuple[int, float, int, bytes]
"""Offset, wall time, step and JSON of a heartbeat."""


@dataclass(slots=True)
class BeatQueue:
    """Consecutive heartbeats of one session, not decoded."""

    session: str = ""
    """The `session_part` of all of them, and of those that were here last."""
    offsets: list[int] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    _bytes: int = 0

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def excess(self) -> int:
        """How many must be decoded before more are added."""
        return len(self.texts) // 2 if len(self.texts) >= MOST_BEATS or self._bytes >= MOST_BYTES else 0

    def add(self, offsets: Iterable[int], walls: Iterable[float], steps: Iterable[int], texts: list[bytes]) -> None:
        """Add heartbeats: offset, wall time, step and JSON of each."""
        self.offsets.extend(offsets)
        self.walls.extend(walls)
        self.steps.extend(steps)
        self.texts.extend(texts)
        self._bytes += sum(map(len, texts))

    def take(self, count: int) -> Iterator[Taken]:
        """Remove the oldest heartbeats; yield each one's offset, wall time, step and JSON."""
        parts = self.offsets[:count], self.walls[:count], self.steps[:count], self.texts[:count]
        for column in (self.offsets, self.walls, self.steps, self.texts):
            del column[:count]
        self._bytes -= sum(map(len, parts[3]))
        return zip(*parts, strict=True)


def covered(taken: Sequence[Taken], marks: list[TelemetryMark], history: BeatHistory) -> CoveredBeats | None:
    """Return what heartbeats amount to; None where the history is of others, since one was not written, or is damaged.

    Args:
        taken: what `BeatQueue.take` yields of all that the history covers.
        marks: `sampled` ones of them, decoded.
        history: what a later heartbeat says of them.

    Raises:
        ValueError: if it does not agree with them.
    """
    first, last = marks[0].record, marks[-1].record
    assert isinstance(first, HeartbeatRecord)
    assert isinstance(last, HeartbeatRecord)
    ends = (history.first_elapsed_secs, first.elapsed_secs), (history.last_elapsed_secs, last.elapsed_secs)
    if not all(_equal(*pair) for pair in ends):
        return None
    offsets = np.array([offset for offset, _, _, _ in taken], np.int64)
    walls = np.array([wall for _, wall, _, _ in taken])
    steps = np.array([step for _, _, step, _ in taken], np.int64)
    if not _is_regular(history, walls, steps):
        raise ValueError("its columns do not fit")
    numbers = np.searchsorted(offsets, [mark.offset for mark in marks])
    for number, mark in zip(numbers.tolist(), marks, strict=True):
        beat = mark.record
        if not isinstance(beat, HeartbeatRecord) or not _agrees(history, number, beat, steps):
            raise ValueError(f"heartbeat {number + 1} is another one")
    if events_of(first) != events_of(last):
        raise ValueError("what lies between them is not what they say")
    return CoveredBeats(
        offset=int(offsets[1]), at=float(walls[1:-1].max()), session=first.session, history=history,
        offsets=offsets, walls=walls, steps=steps,
    )  # fmt: skip


def sampled(count: int, offset: int) -> tuple[int, int, int]:
    """Return which of `count` heartbeats are decoded: the first, one between, the last.

    Args:
        count: of them; at least three.
        offset: of the history, which decides what no writer knows beforehand.
    """
    return 0, 1 + offset % (count - 2), count - 1


def is_possible(history: BeatHistory, count: int) -> bool:
    """Return whether a history may cover heartbeats of which there are `count`."""
    return _LEAST_BEATS <= history.beats <= count


def _is_regular(history: BeatHistory, walls: NDArray[np.float64], steps: NDArray[np.int64]) -> bool:
    """Return whether the columns have the lengths and orders that they must have."""
    count = history.beats
    lasted = history.last_elapsed_secs - history.first_elapsed_secs
    points, phases = history.productive_beats, [each.beat for each in history.phases]
    return (
        len(history.rates) == count
        and len(points) == len(history.productive_secs) > 0
        and history.productive_error_secs <= MOST_ERROR_SECS
        and points[0] == 0
        and _rises(points, count)
        and all(one <= other for one, other in pairwise(history.productive_secs))
        and phases[:1] == [0]
        and _rises(phases, count)
        and all(_is_thread(thread, count) for thread in history.threads)
        and bool((np.diff(steps) >= 0).all())
        and bool((np.diff(walls) >= -_CLOCK_SECS).all())
        and abs(walls[-1] - walls[0] - lasted) <= _CLOCK_SECS
    )


def _rises(numbers: tuple[int, ...] | list[int], count: int) -> bool:
    return all(one < other for one, other in pairwise(numbers)) and (not numbers or 0 <= numbers[-1] < count)


def _is_thread(thread: ThreadBeats, count: int) -> bool:
    ticks = thread.tick_at
    return (
        len(ticks) == len(thread.tick_secs)
        and all(one < other for one, other in pairwise(ticks))
        and _rises([each.beat for each in thread.states], count)
        and all(each.state in CALM for each in thread.states)
    )


def _agrees(history: BeatHistory, number: int, beat: HeartbeatRecord, steps: NDArray[np.int64]) -> bool:
    """Return whether a history says of a heartbeat what that says of itself."""
    phase = next((each.phase for each in reversed(history.phases) if each.beat <= number), None)
    productive = np.interp(steps[number], steps[list(history.productive_beats)], history.productive_secs)
    secs = beat.activity_secs.get("productive", 0.0)
    is_first_of_step = number == 0 or steps[number - 1] < steps[number]
    return (
        beat.phase == phase
        and beat.step == steps[number]
        and beat.steps_per_sec is not None
        and _equal(history.rates[number], beat.steps_per_sec)
        and (not is_first_of_step or abs(float(productive) - secs) <= history.productive_error_secs + _ROUNDING)
        and all(_agrees_on_thread(history, number, each.name, each.state) for each in beat.threads)
        and beat.pause is None
    )


def _agrees_on_thread(history: BeatHistory, number: int, name: str, state: str) -> bool:
    thread = next((each for each in history.threads if each.name == name), None)
    if thread is None:
        return False
    return next((each.state for each in reversed(thread.states) if each.beat <= number), None) == state


def _equal(one: float, other: float | None) -> bool:
    return other is not None and abs(one - other) <= _ROUNDING + 1e-5 * abs(one)


def without_history(mark: TelemetryMark) -> TelemetryMark:
    """Return the mark of a heartbeat without the history, which counts at most once."""
    if not isinstance(mark.record, HeartbeatRecord) or mark.record.history is None:
        return mark
    return TelemetryMark(offset=mark.offset, at=mark.at, step=mark.step, record=replaced(mark.record, history=None))
