"""`fair_turns`: in which order what belongs to several users is served, if not all of it can be."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from heapq import heappop, heappush
from typing import TypeVar

_T = TypeVar("_T")


def fair_turns(items: Iterable[_T], *groups: Callable[[_T], Hashable]) -> Generator[_T, int, None]:
    """Yield items so that at any time about as much was taken of each group; in a group they keep their order. It is
    sent how much each item took.

    Args:
        groups: returns an item's group: the largest kind first; each other one divides what is in one of it.
    """
    if not groups:
        for item in items:
            yield item
        return
    parts: dict[Hashable, list[_T]] = {}
    for item in items:
        parts.setdefault(groups[0](item), []).append(item)
    turns = [fair_turns(part, *groups[1:]) for part in parts.values()]
    waiting = [(0, number, next(turn)) for number, turn in enumerate(turns)]
    while waiting:
        taken, number, item = heappop(waiting)
        size = yield item
        try:
            heappush(waiting, (taken + size, number, turns[number].send(size)))
        except StopIteration:
            continue


def fair_order(items: Iterable[_T], *groups: Callable[[_T], Hashable]) -> list[_T]:
    """Return items that all take as much, in such turns.

    Example:
        >>> fair_order(["a1", "a2", "a3", "b1"], lambda name: name[0])
        ['a1', 'b1', 'a2', 'a3']
    """
    turns, ordered = fair_turns(items, *groups), []
    try:
        ordered.append(next(turns))
        while True:
            ordered.append(turns.send(1))
    except StopIteration:
        return ordered
