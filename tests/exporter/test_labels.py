"""Run labels: each run its own, whichever way they clash."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor_core.metrics.labels import RunLocation, logdir_labels, run_labels


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        pytest.param([("/logs", "a", "digits")], ["digits"], id="its own name"),
        pytest.param([("/logs", "a/b", None)], ["a/b"], id="below the logdir"),
        pytest.param([("/data/digits/", ".", None)], ["digits"], id="the logdir itself"),
        pytest.param([("gs://bucket/digits", ".", None)], ["digits"], id="a store"),
        pytest.param([("/", ".", None)], ["/"], id="the root"),
        pytest.param([("/logs", "a", "x"), ("/logs", "b", "x")], ["a", "b"], id="a copy takes the name from both"),
        pytest.param(
            [("/logs", "a", "b"), ("/logs", "b", None)],
            ["a", "b"],
            id="another's directory",
        ),
        pytest.param(
            [("/logs", "a", "x"), ("/logs", "b", "x"), ("/logs", "c", "b")],
            ["a", "b", "c"],
            id="the directory of a run whose own name was taken",
        ),
        pytest.param([("/1", "b", "2/a"), ("/2", "a", None), ("/3", "a", None)], ["b", "2/a", "3/a"], id="with logdir"),
        pytest.param([("/1", "a", "a"), ("/2", "a", None)], ["a", "2/a"], id="called as its directory"),
        pytest.param([("/1", "a", None), ("/2", "a", None)], ["1/a", "2/a"], id="two logdirs"),
        pytest.param([("/1/x", "a", None), ("/2/x", "a", None)], ["/1/x/a", "/2/x/a"], id="alike to the last part"),
        pytest.param([("/1/x", ".", None), ("/2/x", ".", None)], ["/1/x", "/2/x"], id="logdirs alike"),
        pytest.param([("/logs", os.fsdecode(b"\xff"), None)], ["\\udcff"], id="no text"),
    ],
)
def test_the_name_that_is_free(places: list[tuple[str, str, str | None]], expected: list[str]) -> None:
    """A run has the first name that no other has; those that would share one all go on."""
    assert run_labels([RunLocation(*place) for place in places]) == expected


def test_names_depend_on_no_order() -> None:
    """In whichever order runs were found, each has the same label."""
    places = [
        RunLocation("/1", "a", "x"),
        RunLocation("/2", "a", "x"),
        RunLocation("/2", "x", None),
        RunLocation("/3", "1/a", None),
    ]
    expected = dict(zip(places, run_labels(places), strict=True))
    for order in permutations(places):
        assert dict(zip(order, run_labels(order), strict=True)) == expected


_OWN = st.sampled_from(["a", "b", "logs/a", "/logs/a", "x", "y", "logs", "a (2)"])


@given(
    st.dictionaries(st.tuples(st.sampled_from(["/logs", "/x/logs", "/"]), st.sampled_from("abc.")), st.none() | _OWN),
    _OWN,
)
def test_a_name_in_telemetry_changes_no_others_label(names: dict[tuple[str, str], str | None], claimed: str) -> None:
    """Whatever a new run calls itself, all runs that were there keep their labels."""
    places = [RunLocation(*place, own_name) for place, own_name in names.items()]
    before = run_labels(places)
    served = [replace(place, served=label) for place, label in zip(places, before, strict=True)]
    assert run_labels([RunLocation("/logs", "neighbour", claimed), *served])[1:] == before


def test_many_runs_of_one_label_take_time_in_proportion() -> None:
    """Names that show alike are numbered, and runs that push each other on are settled, in linear time: with many of
    them quadratic time exceeds the limit of a test."""
    assert logdir_labels(["/x"] * 100_000)[-1] == "/x (100000)"
    places = [RunLocation(f"/{number}", "d" if number % 2 else f"{number - 1}/d", "x") for number in range(1, 30_000)]
    assert len(set(run_labels(places))) == len(places)


_NAMES = st.sampled_from(["a", "b", "a/b", ".", "/logs/a", "logs/a", os.fsdecode(b"\xff"), "\\udcff"])


@given(st.lists(st.builds(RunLocation, st.sampled_from(["/logs", "/x/logs", "logs", "/"]), _NAMES, st.none() | _NAMES)))
def test_no_two_are_the_same(places: list[RunLocation]) -> None:
    """However runs are called, every label is there once."""
    found = run_labels(places)
    assert len(found) == len(places)
    assert len(set(found)) == len(found)
