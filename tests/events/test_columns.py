from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor_core.events.chunk import Chunk, Points
from supervisor_core.events.columns import ColumnStore


def chunk(path: str, from_start: bool = False, **tags: list[int]) -> Chunk:
    """A chunk with points at some steps; wall time and value repeat the step."""
    scalars = {
        tag: Points(
            np.arange(len(steps)), np.array(steps, np.int64), np.array(steps, float), np.array(steps, float) / 2
        )
        for tag, steps in tags.items()
    }
    return Chunk(path=path, from_start=from_start, scalars=scalars)


def test_a_file_from_its_start_replaces_what_it_gave() -> None:
    """A file that was replaced leaves nothing of the old one behind; one that is gone leaves nothing at all."""
    store = ColumnStore()
    store.add(chunk("a", from_start=True, a=[1], b=[1]))
    store.add(chunk("c", from_start=True, a=[5]))
    assert store.columns("a").steps.tolist() == [1, 5]
    store.add(chunk("a", from_start=True, a=[2]))
    assert (store.columns("a").steps.tolist(), store.tags) == ([2, 5], ("a",))
    store.add(Chunk(path="a", from_start=True))
    assert (store.columns("a").steps.tolist(), len(store)) == ([5], 1)


def test_long_columns_have_little_room_to_grow() -> None:
    """However often they grew: memory is what limits how many runs are compared without reading them again."""
    store, length = ColumnStore(), 0
    store.add(chunk("a", a=[1, 2, 3]))
    assert store.bytes_held == 3 * 24
    while length < 1_000_000:
        store.add(chunk("long", a=list(range(length, length + 30_000))))
        length += 30_000
    assert length * 24 < store.bytes_held - 3 * 24 <= length * 24 * 1.25
    store.add(Chunk(path="long", from_start=True))
    assert store.bytes_held == 3 * 24


def test_what_was_handed_out_stays() -> None:
    """Columns do not change while the store grows, and cannot be changed."""
    store = ColumnStore()
    store.add(chunk("a", a=[1, 2]))
    first = store.columns("a")
    for step in range(3, 100):
        store.add(chunk("a", a=[step]))
    assert first.steps.tolist() == [1, 2]
    assert store.columns("a").steps.tolist() == list(range(1, 100))
    with pytest.raises(ValueError, match="read-only"):
        first.values[0] = 1


def test_an_unknown_tag_has_no_points() -> None:
    """Asking for a tag that is not there gives empty columns of the right types."""
    columns = ColumnStore().columns("none")
    assert (len(columns), columns.steps.dtype, columns.values.dtype) == (0, np.int64, np.float64)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.lists(st.integers(-5, 5))), max_size=30))
def test_nothing_is_lost_however_it_comes(parts: list[tuple[str, str, list[int]]]) -> None:
    """Any sequence of chunks gives the points of each file in order."""
    store = ColumnStore()
    expected: dict[tuple[str, str], list[int]] = {}
    for path, tag, steps in parts:
        store.add(chunk(path, **{tag: steps}))
        expected.setdefault((path, tag), []).extend(steps)
    for tag in "xy":
        assert store.columns(tag).steps.tolist() == expected.get(("a", tag), []) + expected.get(("b", tag), [])


def test_columns_can_be_had_file_by_file() -> None:
    """Who asks which file a point is of gets the files in the order of their names; none where no point is."""
    store = ColumnStore()
    store.add(chunk("b", a=[10]))
    store.add(chunk("a", a=[1], other=[5]))
    store.add(chunk("b", a=[11]))
    assert {path: columns.steps.tolist() for path, columns in store.by_file("a").items()} == {"a": [1], "b": [10, 11]}
    assert list(store.by_file("a")) == ["a", "b"]
    assert store.by_file("nothing") == {}
