"""Bounds on what records can make a reader keep of one run; of one record, see `supervisor_core.events.record_fields`.

Items beyond a bound are dropped, counted and reported (docs/limits.md); no known real run comes near. Of named things
(threads, workers, tags) the first are kept, of history the newest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Literal, Protocol, TypeVar

DroppedKind = Literal["events", "sessions", "history"]
"""What is beyond a bound: events that nothing is known of (whole files, the scalars of a tag, reports of a thread or a
worker), sessions, or older entries of what is kept. Counted is how often something was dropped: a whole file once, a
session once for each of its records."""
UNSEEN: tuple[DroppedKind, ...] = ("events", "sessions")
"""Without these a run counts as not read in full."""

MAX_THREADS = 256
MAX_WORKERS = 1_000
"""Service threads, and other processes of its cluster, of one session."""
MAX_SESSIONS_OF_FILE = 1_000
MAX_SESSIONS = 10_000
"""Of one run, the same one counted once for each of its files."""
MAX_TAGS = 200_000
"""Likewise."""
MAX_FOLLOWED_TAGS_OF_FILE = 10_000
MAX_FOLLOWED_TAGS = 50_000
"""Of one run: tags whose steps are searched for restarts, counted once per stretch of a file; each takes 2 kB."""
MAX_HISTORY = 100_000
"""Saves of one run; of one launch of another writer."""
KEPT_SAVES = 64
"""Of one session, of good saves and of others each, for readers that hold thousands of runs."""
MAX_STALLS = 1_000
MAX_RECOVERIES = 10_000
MAX_SILENCES = 10_000
MAX_NOTICES = 1_000
MAX_PROGRAM_LAUNCHES = 10_000
"""Likewise, each of one run."""
MAX_HISTORY_CHARS = 32 << 20
"""Of the texts of one run's saves; of its recoveries; of its stalls' stacks."""
MAX_OLD_THREADS = 20_000
MAX_OLD_WORKERS = 50_000
"""Of all sessions of one run; those of the sessions with the oldest heartbeats are dropped first."""
MAX_LAUNCHES = 1_000
"""Launches of one file of another writer, and STARTs of one launch."""


History = Literal[
    "checkpoints", "stalls", "stacks", "recoveries", "silences", "notices", "launches", "deaths", "threads", "workers"
]
"""The kinds of history that are bounded over all sessions of a run."""


def _most(kind: History) -> int:
    most: dict[History, int] = {
        "checkpoints": MAX_HISTORY,
        "stalls": 2 * MAX_STALLS,  # begin and end records, likewise of launches
        "stacks": MAX_STALLS,
        "recoveries": MAX_RECOVERIES,
        "silences": MAX_SILENCES,
        "notices": MAX_NOTICES,
        "launches": MAX_PROGRAM_LAUNCHES,
        "deaths": MAX_SESSIONS,
        "threads": MAX_OLD_THREADS,
        "workers": MAX_OLD_WORKERS,
    }
    return most[kind]


class Allowance:
    """The bounds that all files of a run share.

    Args:
        kept_saves: how many of a session's newest good saves are kept, and of others; None: all.
    """

    __slots__ = ("_pools", "curves", "followed_tags", "kept_saves", "sessions", "tags")

    def __init__(self, kept_saves: int | None = None) -> None:
        self.kept_saves = kept_saves
        self.tags = MAX_TAGS
        self.followed_tags = MAX_FOLLOWED_TAGS
        self.sessions = MAX_SESSIONS
        self.curves = MAX_RECOVERIES
        """Number of recoveries at which a session's curve is split."""
        self._pools: dict[History, Pool] = {}

    def pool(self, kind: History) -> Pool:
        """Return what bounds one kind of history; it is made when it is first needed."""
        if kind not in self._pools:
            self._pools[kind] = Pool(_most(kind), MAX_HISTORY_CHARS)
        return self._pools[kind]


_T = TypeVar("_T")


class Share(Protocol):
    """One session's part of a `Pool`."""

    def __len__(self) -> int:
        """Number of items."""

    def drop(self, count: int) -> int:
        """Drop the oldest items; return their number of characters."""


class Pool:
    """Bounds one kind of history over all sessions of a run: beyond it the oldest items are dropped, first those of the
    session with the oldest activity. A sixteenth more than the bound may be kept, so that not every new item changes
    an old session.

    Args:
        most: the number of items always kept.
        most_chars: the bound on the total characters of their texts.
    """

    __slots__ = ("_chars", "_count", "_most", "_most_chars", "_shares")

    def __init__(self, most: int, most_chars: int) -> None:
        self._most = most
        self._most_chars = most_chars
        self._shares: dict[Share, None] = {}
        """The one that was active last comes last."""
        self._count = self._chars = 0

    def added(self, share: Share, chars: int = 0) -> None:
        """Count a new item of a session."""
        self.touch(share)
        self._count += 1
        self._chars += chars
        if self._count > self._most + self._most // 16:
            while self._count > self._most:
                self._drop(self._count - self._most)
        while self._chars > self._most_chars and self._count > 1:
            self._drop(1 + len(next(iter(self._shares))) // 16)

    def touch(self, share: Share) -> None:
        """Mark a session as the most recently active."""
        self._shares.pop(share, None)
        self._shares[share] = None

    def removed(self, chars: int) -> None:
        """Count an item that a session has removed by itself; it has others."""
        self._count -= 1
        self._chars -= chars

    def _drop(self, count: int) -> None:
        share = next(iter(self._shares))
        count = min(count, len(share))
        self._count -= count
        self._chars -= share.drop(count)
        if not len(share):
            del self._shares[share]


class Newest(Generic[_T]):
    """One session's history of one kind: keeps the newest items, counts the dropped ones.

    Args:
        allowance: the bounds shared with the run's other sessions.
        kind: of the history.
        chars: returns the number of characters of an item.
    """

    __slots__ = ("_allowance", "_chars", "_items", "_kind", "dropped")

    def __init__(self, allowance: Allowance, kind: History, chars: Callable[[_T], int] | None = None) -> None:
        self._items: list[_T] | None = None
        self.dropped = 0
        self._allowance, self._kind = allowance, kind
        self._chars = chars

    @property
    def items(self) -> list[_T]:
        """Those that are kept, oldest first; not to be added to."""
        return self._items or []

    def __len__(self) -> int:
        return len(self._items or ())

    def add(self, item: _T) -> None:
        """Add an item."""
        self._items = self._items or []
        self._items.append(item)
        self._allowance.pool(self._kind).added(self, 0 if self._chars is None else self._chars(item))

    def extend(self, other: Newest[_T]) -> None:
        """Add the items of another one, and its count of dropped ones."""
        for item in other.items:
            self.add(item)
        self.dropped += other.dropped

    def drop(self, count: int) -> int:
        """See `Share.drop`."""
        items = self.items
        gone = items[:count]
        del items[:count]
        self.dropped += len(gone)
        return 0 if self._chars is None else sum(map(self._chars, gone))

    def remove(self, index: int) -> None:
        """Remove an item of which nothing is asked any more. It does not count as dropped."""
        item = self.items.pop(index)
        self._allowance.pool(self._kind).removed(0 if self._chars is None else self._chars(item))

    @property
    def total(self) -> int:
        """Number of items, including dropped ones."""
        return len(self) + self.dropped


class Named(Generic[_T]):
    """One session's named things of one kind; counts the dropped ones.

    Args:
        allowance: as of `Newest`.
        kind: likewise.
        most: how many are kept, the first.
        make: makes one from its name, and `kept`.
        kept: how many entries of each are kept; None: all.
    """

    __slots__ = ("_allowance", "_by_name", "_kept", "_kind", "_make", "_most", "dropped", "refused")

    def __init__(
        self,
        allowance: Allowance,
        kind: History,
        most: int,
        make: Callable[[str, int | None], _T],
        kept: int | None,
    ) -> None:
        self._by_name: dict[str, _T] | None = None
        self.dropped = 0
        self.refused = 0
        """How often one beyond the bound was asked for."""
        self._allowance, self._kind = allowance, kind
        self._most = most
        self._make, self._kept = make, kept

    @property
    def by_name(self) -> dict[str, _T]:
        """Those that are kept; not to be added to."""
        return self._by_name or {}

    def __len__(self) -> int:
        return len(self._by_name or ())

    def get(self, name: str) -> _T | None:
        """Return the thing of a name; None beyond the bound, which is counted."""
        known = self._by_name = self._by_name or {}
        if name not in known:
            if len(known) >= self._most:
                self.refused += 1
                return None
            name = sys.intern(name)  # most runs have the same few
            known[name] = self._make(name, self._kept)
            self._allowance.pool(self._kind).added(self)
        return known[name]

    def touch(self) -> None:
        """Mark the session as active."""
        if self._by_name:
            self._allowance.pool(self._kind).touch(self)

    def drop(self, count: int) -> int:
        """See `Share.drop`."""
        known = self.by_name
        for name in list(known)[:count]:
            del known[name]
        self.dropped += count
        return 0


def with_newest(items: Sequence[_T], more: Iterable[_T], most: int | None) -> Sequence[_T]:
    """Return items and further ones, without the first beyond a number; None keeps all, in a list of the caller's own
    that grows in place."""
    if most is not None:
        found = (*items, *more)
        return found[max(0, len(found) - most) :]
    if not isinstance(items, list):
        return [*items, *more]
    items.extend(more)
    return items
