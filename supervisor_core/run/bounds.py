"""How much of one run is kept, whoever wrote its files: bounds on what a few bytes of a file could multiply.

No real run that we know of comes near one. What is beyond is dropped, counted by kind, and said (docs/limits.md): of
things that are told apart by a name the first are kept, of history the newest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from supervisor_core.run.pools import Pool

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
