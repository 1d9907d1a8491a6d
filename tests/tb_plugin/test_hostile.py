from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from supervisor_core.events.chunk import Chunk
from tests.cases import each
from tests.tb_plugin.conftest import HOSTILE_NAMES, LOGDIR, NOW, Bench, FakeSource, a_run, points, watched

DATA_ROUTES = ("run", "threads", "checkpoints", "checkpoint_marks", "stalls", "tags")


@each("name", HOSTILE_NAMES)
def test_any_name_goes_there_and_back(bench: Callable[..., Bench], name: str) -> None:
    """Runs and tags may have any name: answers have it letter by letter, and a request with it finds them."""
    tab = bench(watched(a_run(name), directory=f"{LOGDIR}/a"), watched(a_run("other")))
    made = Chunk(path=f"{LOGDIR}/a/1", from_start=True, scalars={name: points([1], [NOW], [0.5])})
    tab.sources[f"{LOGDIR}/a"] = FakeSource([made])
    listed = {row["run"] for row in tab.json("runs")["runs"]}
    assert listed == {name, "other"}
    assert tab.json("run", run=name)["run"] == name
    for route in DATA_ROUTES:
        assert tab.get(route, run=name).status_code == 200
    assert [item["tag"] for item in tab.json("tags", run=name)["tags"]] == [name]
    assert tab.columns("scalars", run=name, tag=name)[1]["value"] == [0.5]


def test_numbers_that_json_cannot_hold_are_null(bench: Callable[..., Bench]) -> None:
    """NaN and infinities of a broken run are null wherever they turn up, and columns have them as they are."""
    tab = bench(a_run(steps_per_sec=math.nan, last_event_at=math.inf, rates=(math.nan, 1.0)))
    (row,) = tab.json("runs")["runs"]
    assert (row["steps_per_sec"], row["last_event"], row["rates"]) == (None, None, [None, 1.0])
    values: list[Any] = [math.inf, -math.inf, math.nan]
    made = Chunk(path=f"{LOGDIR}/a/1", from_start=True, scalars={"loss": points([1, 2, 3], [NOW] * 3, values)})
    tab.sources[f"{LOGDIR}/a"] = FakeSource([made])
    assert tab.json("tags", run="a")["tags"][0]["last_value"] is None
    assert tab.columns("scalars", run="a", tag="loss")[1]["value"][:2] == [math.inf, -math.inf]
