"""How much of one run is kept, whoever wrote its files: bounds on what a few bytes of a file could multiply.

No real run that we know of comes near one. What is beyond is dropped, counted by kind, and said (docs/limits.md): of
things that are told apart by a name the first are kept, of history the newest.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, Literal, Protocol, TypeVar

_T = TypeVar("_T")


class Share(Protocol):
    """What one session has of a `Pool`."""

    def __len__(self) -> int:
        """How many items it has."""

    def drop(self, count: int) -> int:
        """Let go of its oldest items; return how many characters they had."""


class Pool:
    """Bounds one kind of history for all sessions of a run together: beyond it the oldest items go, those of the
    session first that was heard of longest ago. A sixteenth more than the bound is kept at times, so that not each new
    item changes an old session.

    Args:
        most: how many items are kept at least, where there are so many.
        most_chars: how many characters their texts may have together.
    """

    def __init__(self, most: int, most_chars: int) -> None:
        self._most = most
        self._most_chars = most_chars
        self._shares: OrderedDict[Share, None] = OrderedDict()
        self._count = self._chars = 0

    def added(self, share: Share, chars: int = 0) -> None:
        """Count one more item of a session, its newest."""
        self.touch(share)
        self._count += 1
        self._chars += chars
        if self._count > self._most + self._most // 16:
            while self._count > self._most:
                self._drop(self._count - self._most)
        while self._chars > self._most_chars and self._count > 1:
            self._drop(1 + len(next(iter(self._shares))) // 16)

    def touch(self, share: Share) -> None:
        """Note that a session was heard of."""
        self._shares[share] = None
        self._shares.move_to_end(share)

    def give_back(self, share: Share) -> None:
        """Let go of all that a session has."""
        if share in self._shares:
            del self._shares[share]
            self._count -= len(share)
            self._chars -= share.drop(len(share))

    def _drop(self, count: int) -> None:
        share = next(iter(self._shares))
        count = min(count, len(share))
        self._count -= count
        self._chars -= share.drop(count)
        if not len(share):
            del self._shares[share]


class Newest(Generic[_T]):
    """What one session has of a kind of history: a list of which the newest items are kept; counts the others.

    Args:
        pool: what it shares with the run's other sessions.
        chars: returns how many characters an item has.
    """

    __slots__ = ("_chars", "_pool", "dropped", "items")

    def __init__(self, pool: Pool, chars: Callable[[_T], int] | None = None) -> None:
        self.items: list[_T] = []
        self.dropped = 0
        self._pool = pool
        self._chars = chars

    def __len__(self) -> int:
        return len(self.items)

    def add(self, item: _T) -> None:
        """Take one more."""
        self.items.append(item)
        self._pool.added(self, 0 if self._chars is None else self._chars(item))

    def extend(self, other: Newest[_T]) -> None:
        """Take what another one has kept, and dropped."""
        for item in other.items:
            self.add(item)
        self.dropped += other.dropped

    def drop(self, count: int) -> int:
        """See `Share.drop`."""
        gone = self.items[:count]
        del self.items[:count]
        self.dropped += len(gone)
        return 0 if self._chars is None else sum(map(self._chars, gone))

    def give_back(self) -> None:
        """Leave to the run's other sessions what this one has taken."""
        self._pool.give_back(self)

    @property
    def total(self) -> int:
        """How many there were, the dropped ones included."""
        return len(self.items) + self.dropped


class Named(Generic[_T]):
    """What one session has of things that are told apart by a name; counts those that were let go.

    Args:
        pool: as of `Newest`.
    """

    __slots__ = ("_pool", "by_name", "dropped")

    def __init__(self, pool: Pool) -> None:
        self.by_name: dict[str, _T] = {}
        self.dropped = 0
        self._pool = pool

    def __len__(self) -> int:
        return len(self.by_name)

    def add(self, name: str, item: _T) -> None:
        """Take one more."""
        self.by_name[name] = item
        self._pool.added(self)

    def heard(self) -> None:
        """Note that the session tells of its things still."""
        if self.by_name:
            self._pool.touch(self)

    def drop(self, count: int) -> int:
        """See `Share.drop`."""
        for name in list(self.by_name)[:count]:
            del self.by_name[name]
        self.dropped += count
        return 0

    def give_back(self) -> None:
        """As of `Newest`."""
        self._pool.give_back(self)


def keep_newest(items: list[_T], most: int | None) -> None:
    """Let go of a list's first items beyond a number; None: of none."""
    if most is not None and len(items) > most:
        del items[: len(items) - most]


DroppedKind = Literal[
    "files",
    "tags",
    "threads",
    "workers",
    "sessions",
    "followed_tags",
    "checkpoints",
    "stalls",
    "stacks",
    "recoveries",
    "silences",
    "old_threads",
    "old_workers",
]
UNSEEN: tuple[DroppedKind, ...] = ("files", "tags", "threads", "workers", "sessions")
"""Of these something is not known at all; of the others only history that is long past is."""

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
"""Of one run, in whose steps restarts are looked for, once for each stretch of a file; each takes some 2 kB."""
MAX_HISTORY = 100_000
"""Saves of one run; of one launch of another writer."""
MAX_STALLS = 1_000
MAX_RECOVERIES = 10_000
MAX_SILENCES = 10_000
"""Likewise, each of one run."""
MAX_HISTORY_CHARS = 32 << 20
"""Of the texts of one run's saves; of its recoveries; of its stalls' stacks."""
MAX_OLD_THREADS = 20_000
MAX_OLD_WORKERS = 50_000
"""Of all sessions of one run; beyond it, those of the sessions go first that were heard of longest ago."""
MAX_SKIPPED = 1_000
"""Checkpoints that one session's restore passed over."""
MAX_LAUNCHES = 1_000
"""Of one file of another writer, and so many STARTs of one of them."""
MAX_VERSIONS = 64
MAX_NAME_CHARS = 256
"""Of a thread, a worker, a session; a longer one is cut."""


class Allowance:
    """What all files of a run together may have."""

    def __init__(self) -> None:
        self.tags = MAX_TAGS
        self.followed_tags = MAX_FOLLOWED_TAGS
        self.sessions = MAX_SESSIONS
        self.paces = MAX_RECOVERIES
        """How many recoveries divide the steps of their sessions."""
        self.checkpoints = Pool(MAX_HISTORY, MAX_HISTORY_CHARS)
        self.stalls = Pool(2 * MAX_STALLS, MAX_HISTORY_CHARS)
        """Their begins and ends."""
        self.stacks = Pool(MAX_STALLS, MAX_HISTORY_CHARS)
        self.recoveries = Pool(MAX_RECOVERIES, MAX_HISTORY_CHARS)
        self.silences = Pool(MAX_SILENCES, MAX_HISTORY_CHARS)
        self.threads = Pool(MAX_OLD_THREADS, MAX_HISTORY_CHARS)
        self.workers = Pool(MAX_OLD_WORKERS, MAX_HISTORY_CHARS)


def counted(kinds: Iterable[tuple[DroppedKind, int]]) -> Counter[DroppedKind]:
    """Return how much was dropped by kind, without the kinds of which nothing was.

    Example:
        >>> counted([("tags", 2), ("stalls", 0), ("tags", 1)])
        Counter({'tags': 3})
    """
    found: Counter[DroppedKind] = Counter()
    for kind, count in kinds:
        if count:
            found[kind] += count
    return found
