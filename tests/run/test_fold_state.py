"""States as bytes: what may be in them, and that nothing else is made of them."""

from __future__ import annotations

import math
import os
from array import array
from collections import Counter

import numpy as np
import pytest
from msgspec.msgpack import encode

from supervisor_core.run import fold_state
from supervisor_core.run.bounds import Allowance, Newest
from supervisor_core.run.file_fold import FileTotals
from supervisor_core.run.fold_state import StateError, packed, unpacked
from supervisor_core.run.rate_history import RateHistory


def test_plain_values_come_back() -> None:
    """Numbers, texts and collections are as they were, of the same types, whatever is in them."""
    item = {
        "numbers": (1, -(1 << 62), 2.5, math.inf, True, None),
        ("a", 1): [[], {}, set(), frozenset({"b"}), Counter({"c": 2}), b"\x00"],
        "column": array("d", [1.0, 2.0]),
        "no text": os.fsdecode(b"caf\xe9"),
    }
    assert unpacked(packed(item)) == item
    assert math.isnan(unpacked(packed(math.nan)))
    columns = unpacked(packed([np.array([1, 2]), np.array(["a", "b"], object), np.float64(1.5)]))
    assert [list(column) for column in columns[:2]] == [[1, 2], ["a", "b"]]
    assert type(columns[2]) is float


def test_what_is_shared_stays_shared() -> None:
    """Histories of one pool have one pool afterwards, which refers to them."""
    allowance = Allowance()
    first, second = Newest[int](allowance, "deaths"), Newest[int](allowance, "deaths")
    first.add(1)
    second.add(2)
    again, other, pools = unpacked(packed((first, second, allowance)))
    other.add(3)
    assert (again.items, other.items) == ([1], [2, 3])
    again.give_back()
    assert pools.pool("deaths")._count == 2


def test_a_history_goes_on() -> None:
    """An object with slots is the same, and can be added to."""
    history = RateHistory()
    history.add(60.0, 2.0)
    again = unpacked(packed(history))
    assert again == history
    again.add(120.0, 3.0)
    assert again != history


@pytest.mark.parametrize("item", [object(), os, open, Exception("x"), 1 << 70, lambda: None, np.zeros])
def test_anything_else_is_refused(item: object) -> None:
    """What is of another package, or no value, is no state."""
    with pytest.raises(StateError):
        packed(item)


@pytest.mark.parametrize(
    "names",
    [
        ["os:system:"],
        ["run.nothing:Run:00000000"],
        ["run.model:os:"],
        ["run.model:__builtins__:"],
        ["run.model:Nothing:00000000"],
        ["run.model:Run:00000000"],
        ["run.model:Run"],
        ["run.fold.x:y:"],
        ["metrics.exporter:Exporter:00000000"],
        [1],
    ],
)
def test_names_of_anything_else_are_refused(names: list[object]) -> None:
    """Only classes and functions of the packages that fold can be named."""
    with pytest.raises(StateError):
        unpacked(encode([names, [16]]))


@pytest.mark.parametrize(
    "tree",
    [[16], [16, 1, 2], [99, 1], [6, 5], [8, 3], [2, "key"], [], [[]], ["a"]],
)
def test_damaged_trees_are_refused(tree: object) -> None:
    """A tree that does not fit costs an error of one kind."""
    with pytest.raises(StateError):
        unpacked(encode([[fold_state._name_of(FileTotals)], tree]))


def test_a_state_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither long states nor deep ones are made."""
    deep: list[object] = []
    for _ in range(fold_state.MOST_DEPTH + 1):
        deep = [deep]
    with pytest.raises(StateError, match="nested"):
        packed(deep)
    monkeypatch.setattr(fold_state, "MOST_BYTES", 100)
    with pytest.raises(StateError, match="bytes"):
        packed("x" * 101)
    with pytest.raises(StateError, match="bytes"):
        unpacked(b"x" * 101)


def test_classes_that_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program whose files were replaced while it ran has written objects with other slots: they are refused."""
    data = packed(RateHistory())

    class Other:
        __slots__ = ("_counts", "_minutes", "_other")

    monkeypatch.setattr("supervisor_core.run.rate_history.RateHistory", Other)
    fold_state._named.cache_clear()
    with pytest.raises(StateError, match="other slots"):
        unpacked(data)
