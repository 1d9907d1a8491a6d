"""`fair_order`: in which order what belongs to several users is served, if not all of it can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def fair_order(items: Iterable[_T], size: Callable[[_T], int], *groups: Callable[[_T], Hashable]) -> list[_T]:
    """Return items so that each beginning has about as much of each group; in a group they keep their order.

    Args:
        size: what one takes.
        groups: returns an item's group: the smallest kind first, which divides what the next one has.

    Example:
        >>> fair_order(["a1", "a2", "a3", "b1"], lambda name: 1, lambda name: name[0])
        ['a1', 'b1', 'a2', 'a3']
    """
    ordered: Sequence[_T] = list(items)
    for group in groups:
        taken: Counter[Hashable] = Counter()
        until = []
        for number, item in enumerate(ordered):
            taken[group(item)] += size(item)
            until.append((taken[group(item)], number))
        ordered = [ordered[number] for _, number in sorted(until)]
    return list(ordered)
