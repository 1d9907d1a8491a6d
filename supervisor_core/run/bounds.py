"""How much of one run is kept, whoever wrote its files: bounds on what a few bytes of a file could multiply.

No real run that we know of comes near one. What is beyond is dropped, counted by kind, and said (docs/limits.md): of
things that are told apart by a name the first are kept, of history the newest.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Generic, Literal, TypeVar

DroppedKind = Literal[
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
]
UNSEEN: tuple[DroppedKind, ...] = ("tags", "threads", "workers", "sessions")
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
"""Saves of one session."""
MAX_STALLS = 1_000
MAX_RECOVERIES = 10_000
MAX_SILENCES = 10_000
"""Likewise, each of one session."""
MAX_SKIPPED = 1_000
"""Checkpoints that one session's restore passed over."""
MAX_STACK_CHARS = 32 << 20
"""Of the stacks of one session's stalls together."""
MAX_LAUNCHES = 1_000
"""Of one file of another writer, and so many STARTs of one of them."""
MAX_VERSIONS = 64
MAX_NAME_CHARS = 256
"""Of a thread, a worker, a session; a longer one is cut."""

_T = TypeVar("_T")


class Allowance:
    """What all files of a run together may have."""

    def __init__(self) -> None:
        self.tags = MAX_TAGS
        self.followed_tags = MAX_FOLLOWED_TAGS
        self.sessions = MAX_SESSIONS


class Newest(Generic[_T]):
    """A list of which the newest items are kept; counts the others.

    Args:
        most: how many.
    """

    __slots__ = ("dropped", "items")

    def __init__(self, most: int) -> None:
        self.items: deque[_T] = deque(maxlen=most)
        self.dropped = 0

    def add(self, item: _T) -> None:
        """Take one more."""
        self.dropped += len(self.items) == self.items.maxlen
        self.items.append(item)

    def extend(self, other: Newest[_T]) -> None:
        """Take what another one has kept, and dropped."""
        for item in other.items:
            self.add(item)
        self.dropped += other.dropped

    @property
    def total(self) -> int:
        """How many there were, the dropped ones included."""
        return len(self.items) + self.dropped


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
