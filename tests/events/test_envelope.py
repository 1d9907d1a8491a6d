from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor_core.events.columns import Columns
from supervisor_core.events.envelope import envelope


def columns(steps: list[int], values: list[float]) -> Columns:
    """Points at some steps, a second apart."""
    return Columns(np.array(steps, np.int64), np.arange(len(steps), dtype=float), np.array(values, float))


def test_a_pixel_keeps_first_smallest_largest_and_last() -> None:
    """What a line would cover is kept, and how many points it stands for."""
    view = envelope(columns([0, 1, 2, 3, 10, 11], [5, 1, 9, 4, 7, 8]), 0, 19, 2)
    assert view.pixels.tolist() == [0, 1]
    assert (view.first.tolist(), view.last.tolist()) == ([5, 7], [4, 8])
    assert (view.minimum.tolist(), view.maximum.tolist()) == ([1, 7], [9, 8])
    assert (view.counts.tolist(), view.x_first.tolist(), view.x_last.tolist()) == ([4, 2], [0, 10], [3, 11])


def test_what_is_not_finite_is_counted_and_not_drawn() -> None:
    """A NaN neither hides its neighbours nor vanishes without a word."""
    view = envelope(columns([0, 1, 2, 3], [math.nan, 1, math.inf, math.nan]), 0, 3, 1)
    assert (view.minimum.tolist(), view.maximum.tolist(), view.nonfinite) == ([1], [1], 3)


def test_a_line_comes_in_from_outside() -> None:
    """The points next to the bounds are named, so that a zoomed line reaches its edges."""
    view = envelope(columns([0, 1, 2, 3, 4, 5], [0, 1, 2, math.nan, 4, 5]), 2, 3, 10)
    assert (view.before, view.after) == ((1, 1), (4, 4))
    assert envelope(columns([1], [1]), 0, 1, 10).before is None


def test_wall_time_is_another_axis() -> None:
    """The same points by the second they were written in."""
    view = envelope(columns([7, 7, 7], [1, 2, 3]), 0, 2, 3, by="wall")
    assert (view.pixels.tolist(), view.last.tolist()) == ([0, 1, 2], [1, 2, 3])


def test_no_points_are_no_rows() -> None:
    """A view of nothing is empty."""
    assert len(envelope(columns([], []), 0, 1, 5)) == 0
    assert len(envelope(columns([5], [1]), 0, 1, 5)) == 0


@pytest.mark.parametrize(("low", "high", "pixels"), [(0, 1, 0), (2, 1, 5), (math.nan, 1, 5)])
def test_a_view_without_room_is_refused(low: float, high: float, pixels: int) -> None:
    """Bounds out of order, or no pixel, are the caller's mistake."""
    with pytest.raises(ValueError, match="bounds in order"):
        envelope(columns([1], [1]), low, high, pixels)


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20), st.floats(width=32)), max_size=60),
    st.integers(-20, 0),
    st.integers(0, 20),
    st.integers(1, 50),
)
def test_a_view_is_bounded_and_complete(points: list[tuple[int, float]], low: int, high: int, pixels: int) -> None:
    """At most a row a pixel, in order; together they hold every finite point between the bounds."""
    view = envelope(columns([step for step, _ in points], [value for _, value in points]), low, high, pixels)
    inside = [value for step, value in points if low <= step <= high]
    finite = [value for value in inside if math.isfinite(value)]
    assert len(view) <= pixels and (np.diff(view.pixels) > 0).all()
    assert view.counts.sum() == len(finite) and view.nonfinite == len(inside) - len(finite)
    if finite:
        assert (view.minimum.min(), view.maximum.max()) == (min(finite), max(finite))
        assert view.pixels[0] >= 0 and view.pixels[-1] < pixels
