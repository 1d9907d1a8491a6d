from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from tb_plugin.compare import comparison
from tb_plugin.run_data import RunView
from tb_plugin.scalar_store import RunScalars
from tests.tb_plugin.conftest import LOGDIR, NOW, Bench, FakeSource, a_rich_run, a_run, a_session, points, watched
from tests.tb_plugin.test_contract import SECTIONS, keys
from tests.tb_plugin.test_scalars import chunk


@pytest.fixture
def restarted(bench: Callable[..., Bench]) -> Bench:
    """A run killed at step 130 that went on from 100, and one that did nothing."""
    tab = bench(dataclasses.replace(a_rich_run(), recoveries=()), a_run("b"))
    first, second = np.arange(1, 131), np.arange(101, 201)
    accuracy = points([1, 2, 150], [NOW - 599, NOW - 598, NOW - 1], [np.inf, 0.5, np.nan])
    tab.sources[f"{LOGDIR}/a"] = FakeSource(
        [
            chunk("one", loss=points(first, NOW - 600 + first, np.where(first == 120, -5.0, 1 / first))),
            chunk("two", loss=points(second, NOW - 60 + second / 10, 1 / second), accuracy=accuracy),
        ]
    )
    tab.sources[f"{LOGDIR}/b"] = FakeSource()
    return tab


def test_points_of_a_run_are_needed_once(restarted: Bench) -> None:
    """A run that has not changed is answered though its points were let go of."""
    before = restarted.json("compare", run="a", tag="loss")
    restarted.sources.clear()
    restarted.scalar_store._runs.clear()
    assert restarted.json("compare", run="a", tag="loss") == before


def test_points_that_were_read_before_are_not_final() -> None:
    """A run was looked at after its points were read: they are read again, though the run has not changed since."""
    source, run = FakeSource([chunk("one", loss=points([1], [NOW - 2], [1.0]))]), RunScalars("/a")
    a = watched(a_run("a"))
    shown = RunView(name="a", directory="/a", watched=a, findings=(), line=b"{}", generation=1)

    def last(read_at: float, problem: str | None = None) -> tuple[float, bool, str | None]:
        run.refresh(lambda _: cast("Any", source))
        run.is_read, run.read_at, run.problem = True, read_at, problem
        (row,) = comparison({"a": shown}, ["loss"], lambda directory, wait_secs: run, 0.0)["runs"]
        return float(row["values"]["loss"]["last"]), row["reading"], row["problem"]

    assert last(-math.inf) == (1.0, True, None)
    assert last(-math.inf, "no disk") == (1.0, False, "no disk"), "asking again and again would not help"
    source.chunks.append(chunk("one", loss=points([2], [NOW - 1], [2.0])))
    assert last(math.inf) == (2.0, False, None)
    source.chunks.append(chunk("one", loss=points([3], [NOW], [3.0])))
    assert last(math.inf) == (2.0, False, None), "the run has not changed"


def test_a_run_that_is_gone_does_not_spoil_the_others(restarted: Bench) -> None:
    """It says so, nothing is known of it, and it makes no column differ."""
    found = restarted.json("compare", run=["gone", "b"])
    gone, other = found["runs"]
    assert "no run 'gone'" in gone["problem"]
    assert {name for name, value in gone.items() if value not in (None, {}, False)} == {"run", "problem"}
    assert (other["run"], other["problem"]) == ("b", None)
    assert found["differing"] == []
    assert gone.keys() == other.keys()


def test_points_that_cannot_be_read_are_a_problem(restarted: Bench) -> None:
    """The rest of the run is there."""
    restarted.sources[f"{LOGDIR}/b"] = FakeSource(error=OSError("stale handle"))
    first, second = restarted.json("compare", run=["a", "b"], tag="loss")["runs"]
    assert first["values"]["loss"]["points"] == 200
    assert "stale handle" in second["problem"]
    assert (second["state"], second["tags"], second["values"]) == ("running", None, None)


def test_too_many_runs_are_refused(restarted: Bench) -> None:
    """50 runs and 20 tags are the most; none is too few."""
    assert "'run' occurs 51 times" in restarted.error("compare", 400, run=[f"r{number}" for number in range(51)])
    assert "'tag' occurs 21 times" in restarted.error("compare", 400, run="a", tag=[f"t{each}" for each in range(21)])
    assert "'run' is missing" in restarted.error("compare", 400)


def test_every_field_is_described(restarted: Bench) -> None:
    """What the answer holds is in http_api.md, and the other way."""
    session = a_session("s", facade="supervise", world_size=1, device_kind="cpu", device_count=1, host="node-7")
    session = dataclasses.replace(session, versions={"torch": "2"}, checkpoint_interval_secs=60.0)
    hparams = {"lr": 0.1, "optimizer": "adam", "amp": True}
    run = dataclasses.replace(a_run("c"), sessions=(session,), labels={"team": "vision"}, hparams=hparams)
    restarted.watches[LOGDIR].runs["c"] = watched(run)
    restarted.index.refresh()
    restarted.sources[f"{LOGDIR}/c"] = FakeSource([chunk("x", loss=points([1], [NOW], [1.0]))])
    described = set(re.findall(r'"(\w+)":', SECTIONS["compare"]))
    assert set(keys(restarted.json("compare", run=["a", "c"], tag="loss"))) == described
