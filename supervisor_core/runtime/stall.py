"""When a session counts as stalled, and where its threads are when it does."""

from __future__ import annotations

import sys
import threading
import traceback
from dataclasses import dataclass
from typing import Literal

MAX_FRAMES = 40
"""How many frames of a stack are kept, the innermost."""


def is_stalled(progress_age_secs: float, timeout_secs: float | None) -> bool:
    """Return whether nothing has moved for longer than the phase's budget.

    Args:
        progress_age_secs: seconds since anything moved.
        timeout_secs: the budget; None where the phase cannot stall.
    """
    return timeout_secs is not None and progress_age_secs > timeout_secs


def python_stacks() -> dict[str, tuple[str, ...]]:
    """Return the Python stack of every thread: thread name -> ``"file:line function"``, outermost first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks: dict[str, tuple[str, ...]] = {}
    for ident, frame in sys._current_frames().items():
        lines = [f"{entry.filename}:{entry.lineno} {entry.name}" for entry in traceback.extract_stack(frame)]
        name = names.get(ident, f"thread {ident}")
        stacks[name if name not in stacks else f"{name} ({ident})"] = tuple(lines[-MAX_FRAMES:])
    return stacks


@dataclass(frozen=True, kw_only=True)
class StallChange:
    """A stall has begun, or ended."""

    state: Literal["begin", "end"]
    since: float
    """Monotonic time of the last progress before the stall."""
    secs: float
    """Seconds without progress: so far when it begins, altogether when it ends."""


class StallWatch:
    """Turns readings of the progress into the moments at which a stall begins and ends. For one thread's use."""

    def __init__(self) -> None:
        self._since: float | None = None

    @property
    def stalled(self) -> bool:
        """Whether a stall is under way."""
        return self._since is not None

    def look(self, now: float, progress_age_secs: float, timeout_secs: float | None) -> StallChange | None:
        """Take one reading; return what it changes, or None.

        Args:
            now: monotonic seconds.
            progress_age_secs: seconds since anything moved.
            timeout_secs: the budget of the present phase; None where it cannot stall.
        """
        last_progress = now - progress_age_secs
        if self._since is None:
            if not is_stalled(progress_age_secs, timeout_secs):
                return None
            self._since = last_progress
            return StallChange(state="begin", since=last_progress, secs=progress_age_secs)
        if is_stalled(progress_age_secs, timeout_secs):
            return None
        since, self._since = self._since, None
        return StallChange(state="end", since=since, secs=max(0.0, last_progress - since))
