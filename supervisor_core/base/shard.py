"""`RunShard`: which of the runs below a logdir one of several exporters reads."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass

MAX_SHARDS = 1_000

_SHARD = re.compile(r"(?:[^/]*-)?(\d{1,9})/(\d{1,9})")


@dataclass(frozen=True, slots=True)
class RunShard:
    """One of several equal parts of the runs.

    A run belongs to exactly one part, which follows from the name of its first events file. So a run keeps its part
    when its directory is renamed, on every machine, wherever the logdir is mounted; and a copy of it, or a symbolic
    link to it, is in the same part, where it can be recognized as one. With one part more, as few runs as possible
    change theirs.

    Args:
        index: from 0 on.
        count: how many parts there are.

    Raises:
        ValueError: if there is no such part.

    Example:
        >>> RunShard.parse("0/4"), RunShard.parse("tb-supervisor-exporter-3/4")
        (RunShard(index=0, count=4), RunShard(index=3, count=4))
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_SHARDS:
            raise ValueError(f"the number of shards is {self.count}; expected 1 to {MAX_SHARDS:,}")
        if not 0 <= self.index < self.count:
            raise ValueError(f"of {self.count} shards the first is 0 and the last {self.count - 1}, not {self.index}")

    @classmethod
    def parse(cls, text: str) -> RunShard:
        """Return the shard of a text: ``I/N``, where I may be the name of a pod, which ends in a dash and a number.

        Raises:
            ValueError: if it is none.
        """
        found = _SHARD.fullmatch(text.strip())
        if found is None:
            raise ValueError("expected I/N like 0/4, or the name of a pod like exporter-0/4")
        return cls(int(found[1]), int(found[2]))

    def has(self, first_event_file: str) -> bool:
        """Say whether the run is one of this part whose first events file has this name."""
        return _part_of(first_event_file, self.count) == self.index


def _part_of(name: str, count: int) -> int:
    """Return the part of a name, from 0 on, by jump consistent hashing (Lamping and Veach, arXiv 1406.2294)."""
    key = int.from_bytes(hashlib.blake2b(os.fsencode(name), digest_size=8).digest(), "big")
    part, jump = -1, 0
    while jump < count:
        part = jump
        key = (key * 2862933555777941757 + 1) % 2**64
        jump = int((part + 1) * 2**31 / ((key >> 33) + 1))
    return part
