"""What a heartbeat holds: service threads, a pause, and what the heartbeats before it amount to.

The writer puts a `BeatHistory` into a heartbeat from time to time (`supervisor_core.events.beat_history`). A reader
that has not yet decoded what it covers checks it, and need not decode most of that
(`supervisor_core.events.covered_beats`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from msgspec import Meta

from supervisor_core.events.record_fields import Name, Number, Text, Whole

ThreadState = Literal["starting", "idle", "ticking", "overdue", "failed", "stopped"]
"""State of a service thread: ``overdue`` is late by more than its interval, ``failed`` has ended by an error or
keeps failing, ``stopped`` has ended as asked."""


MAX_BEATS = 1_000
"""Covered by one history."""
MOST_ERROR_SECS = 1.0
"""How far the productive seconds between two points of a history may be from those of the heartbeats."""

CalmState = Literal["starting", "idle", "ticking", "stopped"]
"""States of a service thread that need no attention."""
CALM: frozenset[str] = frozenset(get_args(CalmState))

Numbers = Annotated[tuple[Number, ...], Meta(max_length=MAX_BEATS)]
Wholes = Annotated[tuple[Whole, ...], Meta(max_length=MAX_BEATS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseReport:
    """A time in which no Python code of the process ran."""

    cause: Name | None = None
    since: Number | None = None
    """Wall time."""
    secs: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStatus:
    """One service thread at one moment. Times are wall-clock seconds since the epoch; None where there was none."""

    name: Name
    state: ThreadState
    interval_secs: Number | None = None
    """Seconds between ticks; None for a thread that runs back to back or waits for work."""
    ticks: Whole = 0
    failures: Whole = 0
    last_tick_at: Number | None = None
    """When the last tick ended, successful or not."""
    last_tick_secs: Number | None = None
    overdue_secs: Number = 0.0
    """Delay of the present tick, or of the one that should have begun; 0 when in time."""
    last_error: Text | None = None
    last_failure_at: Number | None = None
    ticking_secs: Number | None = None
    """How long the present tick has lasted; None where there is none, and for a thread that may wait for work in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatPhase:
    """A phase, from one of the covered heartbeats on."""

    beat: Whole
    """Its number, from 0."""
    phase: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStretch:
    """A state of a service thread, from one of the covered heartbeats on."""

    beat: Whole
    state: CalmState
    overdue_secs: Number = 0.0
    """The longest that a heartbeat has reported in this state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadBeats:
    """One service thread in the covered heartbeats: no tick failed."""

    name: Name
    states: Annotated[tuple[ThreadStretch, ...], Meta(max_length=MAX_BEATS)] = ()
    tick_at: Numbers = ()
    """When the ticks ended that the heartbeats have seen, after the first one."""
    tick_secs: Numbers = ()
    """How long each of these took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatHistory:
    """What the heartbeats before this one amount to. Between the first and the last of them nothing happened: no stall,
    no pause, no failed tick, no change of a worker's state; the step did not fall, and the clock was not set."""

    beats: Whole
    """How many it covers: the last ones in the file before this one."""
    first_elapsed_secs: Number
    """``elapsed_secs`` of the first of them."""
    last_elapsed_secs: Number
    """That of the last."""
    phases: Annotated[tuple[BeatPhase, ...], Meta(max_length=MAX_BEATS)] = ()
    rates: Numbers = ()
    """``steps_per_sec`` of each."""
    productive_beats: Wholes = ()
    """The numbers of those whose productive seconds are given; between them these are proportional to the step."""
    productive_secs: Numbers = ()
    productive_error_secs: Number = 0.0
    """How far those of the others are from that: the time of two steps, at least 0.05 and at most 1."""
    threads: tuple[ThreadBeats, ...] = ()
