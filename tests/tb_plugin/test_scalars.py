from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor_core.events.chunk import Chunk
from supervisor_core.run.fold.points import thin
from tb_plugin.scalars import smooth
from tests.cases import each
from tests.tb_plugin.conftest import (
    LOGDIR,
    NOW,
    Bench,
    FakeSource,
    a_rich_run,
    a_run,
    a_session,
    points,
)

DIRECTORY = f"{LOGDIR}/a"


def chunk(file: str, **tags: Any) -> Chunk:
    """New points of a file, by tag."""
    return Chunk(path=f"{DIRECTORY}/{file}", from_start=False, scalars=tags)


@pytest.fixture
def restarted(bench: Callable[..., Bench]) -> Bench:
    """A run killed at step 130 that went on from 100."""
    tab = bench(dataclasses.replace(a_rich_run(), recoveries=()))
    first, second = np.arange(1, 131), np.arange(101, 201)
    tab.sources[DIRECTORY] = FakeSource(
        [
            chunk("one", loss=points(first, NOW - 600 + first, 1 / first)),
            chunk("two", loss=points(second, NOW - 60 + second / 10, 1 / second), accuracy=points([1], [NOW], [0.5])),
        ]
    )
    return tab


def test_tags_say_what_there_is(restarted: Bench) -> None:
    """Each tag with its number of points, all files taken together, and where it stands."""
    assert restarted.json("tags", run="a")["tags"] == [
        {"tag": "accuracy", "points": 1, "first_step": 1, "last_step": 1, "last_value": 0.5},
        {"tag": "loss", "points": 230, "first_step": 1, "last_step": 200, "last_value": 1 / 200},
    ]


def test_abandoned_points_are_there_and_known_as_such(restarted: Bench) -> None:
    """Nothing is purged: both sessions' points come whole, and the header says from which step on they were redone."""
    header, columns = restarted.columns("scalars", run="a", tag="loss")
    assert (header["points"], header["thinned"], header["length"]) == (230, False, 230)
    assert header["segments"] == [
        {"session": "one", "abandoned_after_step": 100},
        {"session": "two", "abandoned_after_step": None},
    ]
    assert columns["step"] == [*range(1, 131), *range(101, 201)]
    assert columns["segment"] == [0] * 130 + [1] * 100
    assert columns["value"][129:131] == [1 / 130, 1 / 101]


def test_running_time_leaves_downtime_out(restarted: Bench) -> None:
    """The first session ran for 480 s, and the second goes on from there; bounds are running times, too."""
    header, columns = restarted.columns("scalars", run="a", tag="loss", by="running")
    assert header["columns"] == ["wall", "step", "value", "segment", "running"]
    expected = [*np.arange(1.0, 131.0), *(480 + np.arange(101, 201) / 10)]
    assert columns["running"] == pytest.approx(expected, abs=1e-6)
    assert columns["wall"][0] == NOW - 599
    header, columns = restarted.columns("scalars", run="a", tag="loss", by="running", from_=129.5, to=490.25)
    assert columns["step"] == [130, 101, 102]


def test_a_window_is_cut_by_wall_time_or_step(restarted: Bench) -> None:
    """Bounds are included, on either axis; segments outside of the window are not listed."""
    header, columns = restarted.columns("scalars", run="a", tag="loss", by="step", from_=129, to=131)
    assert columns["step"] == [129, 130, 129, 130, 131]
    assert columns["segment"] == [0, 0, 1, 1, 1]
    header, columns = restarted.columns("scalars", run="a", tag="loss", from_=NOW - 60 + 20)
    assert columns["step"] == [200]
    assert (header["segments"], columns["segment"]) == ([{"session": "two", "abandoned_after_step": None}], [0])
    header, columns = restarted.columns("scalars", run="a", tag="loss", from_=NOW + 10**6)
    assert (header["points"], header["segments"], columns["step"]) == (0, [], [])


def test_a_million_points_are_thinned_to_what_is_drawn(bench: Callable[..., Bench]) -> None:
    """Of a million points some thousand come, and with them the one peak, the one dip and the one gap."""
    tab = bench(a_run(sessions=(a_session("one", files=(f"{DIRECTORY}/one",)),)))
    count = 1_000_000
    values = np.sin(np.arange(count) / 1e4)
    values[123_456], values[654_321], values[777_777] = 50.0, -50.0, math.nan
    tab.sources[DIRECTORY] = FakeSource([chunk("one", loss=points(np.arange(count), NOW + np.arange(count), values))])
    header, columns = tab.columns("scalars", run="a", tag="loss", pixels=500)
    assert (header["points"], header["thinned"]) == (count, True)
    assert header["length"] <= 5 * 500
    assert columns["step"] == sorted(columns["step"])
    drawn = dict(zip(columns["step"], columns["value"], strict=True))
    assert (drawn[123_456], drawn[654_321]) == (50.0, -50.0)
    assert math.isnan(drawn[777_777])
    assert {0, count - 1} <= drawn.keys()
    header, columns = tab.columns("scalars", run="a", tag="loss", by="step", from_=1000, to=1999, pixels=500)
    assert (header["thinned"], columns["step"]) == (False, list(range(1000, 2000)))


def test_points_without_a_place_are_left_out(bench: Callable[..., Bench]) -> None:
    """A wall time that is no number can be drawn nowhere; by step the same point has its place."""
    tab = bench(a_run())
    tab.sources[DIRECTORY] = FakeSource([chunk("x", loss=points([1, 2, 3], [NOW, math.nan, math.inf], [1, 2, 3]))])
    assert tab.columns("scalars", run="a", tag="loss")[1]["step"] == [1]
    header, columns = tab.columns("scalars", run="a", tag="loss", by="step")
    assert columns["step"] == [1, 2, 3]
    assert header["segments"] == [{"session": None, "abandoned_after_step": None}]


def test_scalars_that_cannot_be_read_say_why(bench: Callable[..., Bench]) -> None:
    """Storage that fails is a 503 with its reason, and is tried again."""
    tab = bench(a_run())
    tab.sources[DIRECTORY] = FakeSource([chunk("x", loss=points([1], [NOW], [1]))], error=OSError("stale handle"))
    answer = tab.get("tags", run="a")
    assert (answer.status_code, answer.get_json()["reason"]) == (503, "failed")
    assert "stale handle" in answer.get_json()["error"]
    tab.sources[DIRECTORY].error = None
    tab.clock.now += 2.0
    assert len(tab.json("tags", run="a")["tags"]) == 1


@given(x=st.lists(st.integers(-50, 50), min_size=1, max_size=200), pixels=st.integers(1, 20), data=st.data())
def test_thinning_keeps_what_a_pixel_shows(x: list[int], pixels: int, data: st.DataObject) -> None:
    """Of each pixel the first, the last, both extremes and a gap survive; each kept point is one that was there, and
    none comes twice. Whatever the order of the points, and whatever their values."""
    rises = data.draw(st.booleans())
    x = sorted(x) if rises else x
    numbers = st.one_of(st.floats(width=32), st.sampled_from([0.0, 1.0]))
    values = np.array(data.draw(st.lists(numbers, min_size=len(x), max_size=len(x))))
    edges = np.linspace(*data.draw(st.sampled_from([(-60, 60), (-50, 50), (min(x), max(x))])), pixels + 1)[1:-1]
    kept = thin(np.array(x), values, edges, rises=rises).tolist()
    assert kept == sorted(set(kept))
    groups: dict[int, list[int]] = {}
    for place in range(len(x)):
        groups.setdefault(sum(x[place] >= edge for edge in edges), []).append(place)
    for places in groups.values():
        here = [place for place in kept if place in places]
        real = [values[place] for place in places if not math.isnan(values[place])]
        shown = [values[place] for place in here if not math.isnan(values[place])]
        assert {places[0], places[-1]} <= set(here)
        assert (min(real, default=None), max(real, default=None)) == (
            min(shown, default=None),
            max(shown, default=None),
        )
        assert len(real) == len(places) or any(math.isnan(values[place]) for place in here)
        assert len(here) <= 5


def reference(values: Any, weight: float) -> list[float]:
    """TensorBoard's smoothing, as its page does it."""
    shown, last, missing = [], 0.0, 1.0
    for value in values:
        if math.isfinite(value):
            last, missing = last * weight + (1 - weight) * value, missing * weight
            value = last / (1 - missing)
        shown.append(value)
    return shown


@given(
    values=st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.just(math.inf)), max_size=300),
    weight=st.sampled_from([0.01, 0.3, 0.6, 0.9, 0.99, 0.9999]),
)
def test_smoothing_is_tensorboards(values: list[float], weight: float) -> None:
    """The average of every point, as one loop over all would have it; what is no number is passed on."""
    (smoothed,) = smooth([(np.array(values), np.arange(len(values)), None)], weight)
    scale = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    np.testing.assert_allclose(smoothed, reference(values, weight), rtol=1e-9, atol=1e-9 * scale + 1e-300)


def test_smoothing_goes_along_what_was_kept(restarted: Bench) -> None:
    """Abandoned points continue the average and do not feed it; a window's first point knows all before it."""
    _, columns = restarted.columns("scalars", run="a", tag="loss", smoothing=0.9)
    first, second = columns["value"][:130], columns["value"][130:]
    kept = reference(first[:100] + second, 0.9)
    assert columns["smoothed"][:100] == pytest.approx(kept[:100])
    assert columns["smoothed"][130:] == pytest.approx(kept[100:])
    assert columns["smoothed"][100:130] == pytest.approx(reference(first, 0.9)[100:])
    _, window = restarted.columns("scalars", run="a", tag="loss", by="step", from_=150, to=150, smoothing=0.9)
    assert window["smoothed"] == pytest.approx([kept[149]])
    assert "smoothed" not in restarted.columns("scalars", run="a", tag="loss")[1]


def test_smoothed_noise_has_its_mean_at_any_width_and_zoom(bench: Callable[..., Bench]) -> None:
    """Noise of mean 1 whose largest values are far above it: the line that is drawn lies at 1, not at the extremes."""
    tab = bench(a_run())
    count = 200_000
    values = np.random.default_rng(7).exponential(1.0, count)
    tab.sources[DIRECTORY] = FakeSource([chunk("x", loss=points(np.arange(count), NOW + np.arange(count), values))])
    for pixels in (300, 1000, 2500):
        for low, high in ((0, count), (40_000, 120_000)):
            for weight in (0.6, 0.99):
                asked = {"by": "step", "from_": low, "to": high, "pixels": pixels, "smoothing": weight}
                header, columns = tab.columns("scalars", run="a", tag="loss", **asked)
                assert header["thinned"]
                assert np.mean(columns["smoothed"]) == pytest.approx(1.0, abs=0.02), asked
                assert np.max(columns["value"]) > 8.0


@each("wrong", ["1", "-0.1", "nan", "much"])
def test_a_smoothing_out_of_bounds_is_refused(restarted: Bench, wrong: str) -> None:
    """With what was expected."""
    assert "'smoothing'" in restarted.error("scalars", 400, run="a", tag="loss", smoothing=wrong)
