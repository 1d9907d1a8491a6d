"""`SessionTime`: what a session's seconds became once its neighbours were known."""

from __future__ import annotations

from typing import NamedTuple


class SessionTime(NamedTuple):
    """What the order of a run's sessions makes of one of them. Its own seconds are `Session.activity_secs`."""

    share: float = 0.0
    """The part of its own seconds that counts; in the rest another session ran at the same time."""
    wasted_secs: float = 0.0
    """Productive seconds of steps that were repeated later."""
    at_risk_secs: float = 0.0
    """Productive seconds of steps in no checkpoint, as `AtRisk` has them."""
    after: tuple[tuple[str, float], ...] = ()
    """Bucket and seconds of the time from its end to the next session's start, in order."""
