"""Keys of dicts that somebody else may have chosen: `Keys`.

Python's hashes of numbers and of tuples are no secret: many keys with one hash make a dict take time in proportion to
their square. Texts and bytes have hashes that differ from process to process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

MAX_ALIKE = 100
"""Keys of a container that have one hash; in what a program writes there are two, -1 and -2."""
MAX_BITS = 64
"""Of an integer that is a key: longer ones can all have one hash."""
MAX_ITEMS = 1_000
"""Of a tuple that is a key: its hash is computed at each use."""


class Keys:
    """The keys of some containers, of which few may have one hash."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, Hashable]] = Counter()

    def add(self, container: object, key: Hashable, kind: Hashable = None) -> None:
        """Count a key.

        Args:
            container: what it is put into. key: a plain value, or a tuple of them.
            kind: what all keys have in common whose hashes are not known here; None for one whose hash is.

        Raises:
            ValueError: if it is a long integer or tuple, or too many keys of this container have its hash.
        """
        if kind is None:
            require_short(key)
            if isinstance(key, (str, bytes, int)) or key is None:
                return
            kind = hash(key)
        group = (id(container), kind)
        self._counts[group] += 1
        if self._counts[group] > MAX_ALIKE:
            raise ValueError(f"more than {MAX_ALIKE} keys of a dict have one hash")


def require_short(key: object) -> None:
    """Do nothing for a key whose hash takes little time, and is that of few others of its type.

    Raises:
        ValueError: for a long integer or tuple.
    """
    if isinstance(key, int) and key.bit_length() > MAX_BITS:
        raise ValueError(f"a key is an integer of more than {MAX_BITS} bits")
    if isinstance(key, tuple):
        if len(key) > MAX_ITEMS:
            raise ValueError(f"a key is a tuple of more than {MAX_ITEMS:,} items")
        for item in key:
            require_short(item)
