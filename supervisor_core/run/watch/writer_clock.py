"""`WriterClock`: what the clock of a run's machine shows, by when its newest time reached the reader.

The clocks of two machines need not agree. So whether a session is silent is judged by the reader's own clock: by when
it saw the session's newest time (of its liveness file, or of an event) change. That is when the file was written,
if the file system's clock fits between two looks; else the look itself.

At its first look a reader has seen nothing change. A newest time of the last half minute is taken as it is. Else the
time at which the file was written counts, if it is not in the future, and within an hour of what was written: a file
that was copied without its times was written long after that. Else
the newest time itself counts, but not as later than now: a clock that is ahead delays nothing for long.
"""

from __future__ import annotations

AGREE_SECS = 5.0
"""Clocks that are no further apart agree: what is written takes a moment to reach the disk."""
RECENT_SECS = 30.0
"""At a first look, a time that is no older is one of a clock that agrees."""
DELAY_SECS = 60.0
"""Where it is not known when the file was written, its news may be this old when they arrive (a store, a mirror)."""
COPIED_SECS = 3600.0
"""A file that was written so long after the time that it holds was copied."""
_SLACK_SECS = 2.0
_KEPT = 5


class WriterClock:
    """Takes a writer's newest time at each look. Used by one thread at a time.

    Example:
        >>> clock = WriterClock()
        >>> clock.observe("a", at=400.0, written_at=None, now=1000.0)
        >>> clock.observe("a", at=410.0, written_at=None, now=1010.0)  # it goes on: its clock is ten minutes behind
        >>> clock.now(1015.0), clock.skew_secs
        (415.0, -600.0)
    """

    __slots__ = ("_ahead_secs", "_at", "_looked_at", "_seen", "_session", "is_moving")

    def __init__(self) -> None:
        self._session: str | None = None
        self._at: float | None = None
        self._looked_at: float | None = None
        self._ahead_secs = 0.0
        self._seen: tuple[float, ...] = ()
        self.is_moving = False
        """Whether a time was seen to change."""

    def now(self, now: float) -> float:
        """Return the present time by the writer's clock, as of its newest time."""
        return now + self._ahead_secs

    @property
    def skew_secs(self) -> float | None:
        """By how much the writer's clock is ahead; None before anything of it was seen. What arrives late looks like a
        clock that is behind: so the largest of a few differences counts."""
        return float(round(max(self._seen))) if self._seen else None

    def observe(self, session: str, *, at: float, written_at: float | None, now: float) -> None:
        """Take what is there at a look.

        Args:
            session: whose time it is; another one may have another clock.
            at: the newest time, by the writer's clock.
            written_at: when the file was written, by the clock of its file system; None where unknown.
            now: the present time, by the reader's clock.
        """
        before, self._looked_at = self._looked_at, now
        if session != self._session:
            self._seen = ()
        elif at == self._at:
            return
        elif not self.is_moving:
            self.is_moving = True
            self._seen = ()  # what was seen is better than what the first look could tell
        self._session, self._at = session, at
        known = _by_file(at, written_at, now) if before is None else _by_looks(at, written_at, now, before)
        ahead = max(0.0, at - now) if known is None else known
        self._ahead_secs = 0.0 if abs(ahead) <= AGREE_SECS else ahead
        if known is not None:
            self._seen = (*self._seen, self._ahead_secs)[-_KEPT:]


def _by_file(at: float, written_at: float | None, now: float) -> float | None:
    if now - RECENT_SECS <= at <= now + AGREE_SECS:
        return 0.0  # the two clocks agree, whatever that of the file system says
    if written_at is not None and written_at <= now + _SLACK_SECS and abs(at - written_at) <= COPIED_SECS:
        return at - written_at
    return None


def _by_looks(at: float, written_at: float | None, now: float, before: float) -> float:
    if written_at is not None and before - _SLACK_SECS <= written_at <= now + _SLACK_SECS:
        return at - written_at
    return 0.0 if before - DELAY_SECS <= at <= now + AGREE_SECS else at - now
