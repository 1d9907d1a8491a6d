"""`WorkerStatus`: another process of the cluster; `Place`: where one is that makes no progress; `Pace`: how long one of
several takes for a step. In heartbeat files, and in the chief's heartbeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from supervisor_core.events.record_fields import Name, Number, Text, Whole
from supervisor_core.process.collectives import KEPT_FRAMES, digest, kept, waits_in
from supervisor_core.process.stacks import Activity, user_line

MAX_LOCATION_CHARS = 512
"""Of the line at which a stall was."""

WorkerState = Literal["waiting", "running", "stalled", "lost", "stopped", "failed"]
"""State of another process of the cluster: ``waiting`` for the chief, ``running``, ``stalled`` beyond its hang
timeout, ``lost`` without heartbeats, ``stopped`` when it ended as planned, ``failed`` when it ended by an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the main thread of a process is that makes no progress."""

    digest: Name
    """The same for two processes that are at the same place: see `supervisor_core.process.collectives.digest`."""
    location: Annotated[str, Meta(max_length=MAX_LOCATION_CHARS)] | None = None
    """The innermost line of the program in its stack, as in `StallRecord.location`."""
    waits_in: Name | None = None
    """The collective operation in which it waits for the other processes; None where it waits in none, or in one that
    is not known."""
    activity: Activity | None = None
    """As in `StallRecord.activity`."""
    frames: Annotated[tuple[Text, ...], Meta(max_length=KEPT_FRAMES)] = ()
    """The innermost frames of its stack, outermost first; none in a heartbeat."""


def place_of(stack: Sequence[str], line: str | None = None) -> Place:
    """Return the place of a stack.

    Args:
        stack: the main thread's, outermost frame first.
        line: the innermost line of the program. Default: that of the stack.

    Example:
        >>> place_of(("/home/me/train.py:14 stuck_in_user_code",)).location
        '/home/me/train.py:14 stuck_in_user_code'
    """
    line = user_line(stack) if line is None else line
    location = None if line is None else line[-MAX_LOCATION_CHARS:]
    return Place(digest=digest(stack), location=location, waits_in=waits_in(stack), frames=kept(stack))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Of the last minute in which it trained."""

    step_secs: Number
    """Seconds for a step: the median. Processes that wait for each other in each step have the same."""
    own_secs: Number
    """The part of it in which the main thread was in no collective operation that is known, by looks at its stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """Another process of the cluster at one moment, as the chief sees it. Times are wall-clock seconds since the epoch,
    by the chief's clock; None where unknown."""

    name: Name
    """Its task, ``worker:1``, ``ps:0``; ``host-pid`` without a task."""
    state: WorkerState
    phase: Text | None = None
    waiting_for: Text | None = None
    """What it is waiting for; None while it is not."""
    step: Whole | None = None
    """The latest global step it saw."""
    steps: Whole | None = None
    """Steps done by its present process; None for one that does none (a parameter server)."""
    last_seen_at: Number | None = None
    """When it was last seen."""
    started_at: Number | None = None
    """When its present process began, by that process's own clock."""
    host: Text | None = None
    pid: Whole | None = None
    error: Text | None = None
    """The error that ended it."""
    progress_age_secs: Number | None = None
    """Seconds without progress when it was last seen."""
    hang_timeout_secs: Number | None = None
    """How long it may go without progress by its own account, as if it trained alone; None where it cannot hang."""
    held: bool = False
    """Whether it waits for a save."""
    place: Place | None = None
    """Where it is, while it makes no progress."""
    pace: Pace | None = None
