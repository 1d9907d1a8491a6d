from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.events.chunk import FileFacts, Problem
from supervisor_core.run.judge.run_json import run_json
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import WatchedRun
from tb_plugin import backend, run_data
from tb_plugin.lanes import thread_lanes
from tests.tb_plugin.conftest import NOW, Bench, FakeWatch, a_rich_run, a_run, changed, watched


def test_one_run_has_all_its_fields(bench: Callable[..., Bench]) -> None:
    """Everything about a run that does not grow without bound is in one answer, and counts of the rest."""
    answer = bench(a_rich_run()).json("run", run="a")
    first, second = answer["sessions"]
    assert (first["id"], first["outcome"], first["last_step"]) == ("one", "lost", 130)
    assert second["checkpoint_interval_secs"] == 60.0
    assert second["skipped_checkpoints"] == [{"path": "model.ckpt-120", "reason": "cut short"}]
    (restart,) = answer["restarts"]
    assert (restart["from_session"], restart["to_session"], restart["rewind_steps"]) == ("one", "two", 30)
    assert answer["checkpoints"]["newest_good"]["step"] == 180
    assert {name: answer["checkpoints"][name] for name in ("count", "failed", "on_disk")} == {
        "count": 3,
        "failed": 1,
        "on_disk": 1,
    }
    assert (answer["stalls"], answer["threads"], answer["steps_lost"]) == (1, ["checkpoint"], 30)
    (recovery,) = answer["recoveries"]
    assert (recovery["session"], recovery["losses"], recovery["rewind_steps"]) == ("two", 2, 10)
    assert (answer["workers"], second["adopted"]) == (2, False)
    assert answer["at"] == NOW
    assert sum(answer["goodput"]["secs"].values()) == answer["goodput"]["wall_secs"]


def test_causes_and_the_better_interval_are_in_words(bench: Callable[..., Bench]) -> None:
    """So that no view needs words of its own."""
    answer = bench(a_rich_run()).json("run", run="a")
    assert answer["proposed_interval"]["what"] == "Save every 25 s instead of 1 min"
    assert "is expected to save 1.7 % of the time" in answer["proposed_interval"]["why"]
    (silence,) = answer["silences"]
    assert silence["why"] == "it was stopped by a signal, or its machine was frozen or suspended"
    paused = replace(a_rich_run().silences[0], cause="machine_suspended")
    answer = bench(a_run("a", silences=(paused,))).json("run", run="a")
    assert answer["silences"][0]["why"] == "its machine was suspended"
    assert answer["proposed_interval"] is None


def test_a_run_is_described_once_for_each_look_that_changed_it(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that asks again, of a run that stands still, costs nothing of what the run holds; the time is that of the
    newest look."""
    made: list[str] = []

    def counted(run: WatchedRun, names: str) -> dict[str, Any]:
        made.append(names)
        return run_json(run, names)

    drawn: list[float] = []

    def counted_lanes(run: Run, since: float, until: float) -> dict[str, Any]:
        drawn.append(since)
        return thread_lanes(run, since, until)

    monkeypatch.setattr(run_data, "run_json", counted)
    monkeypatch.setattr(backend, "thread_lanes", counted_lanes)
    watch = FakeWatch(watched(a_rich_run()))
    tab = bench(watch)
    first = tab.json("run", run="a")
    watch.at += 5.0
    tab.index.refresh()
    assert tab.json("run", run="a") == {**first, "at": first["at"] + 5.0}
    assert len(made) == 1
    assert tab.get("threads", run="a").data == tab.get("threads", run="a").data
    assert drawn == [-math.inf]
    tab.get("threads", run="a", **{"from": 5})
    assert drawn == [-math.inf, 5]
    watch.runs["a"] = changed(a_rich_run(), state="stalled")
    tab.index.refresh()
    assert tab.json("run", run="a")["state"] == "stalled"


def test_files_are_counted_and_their_problems_named(bench: Callable[..., Bench]) -> None:
    """Sizes and records are those of the files that could be read; what is wrong with any file is listed."""
    damaged = FileFacts(
        path="/runs/a/1",
        size_bytes=1000,
        read_bytes=1000,
        records=9,
        corrupt_records=1,
        torn_bytes=0,
        problems=(Problem(kind="corrupt_record", offset=77, text="no match"),),
    )
    pointer = FileFacts(
        path="/runs/a/2",
        size_bytes=130,
        read_bytes=0,
        records=0,
        corrupt_records=0,
        torn_bytes=0,
        skipped="a Git LFS pointer",
    )
    answer = bench(watched(a_run(), files=(damaged, pointer))).json("run", run="a")
    assert (answer["files"], answer["bytes"], answer["records"], answer["corrupt_records"]) == (1, 1000, 9, 1)
    assert answer["problems"] == [
        {"path": "/runs/a/2", "offset": None, "kind": "skipped", "text": "a Git LFS pointer"},
        {"path": "/runs/a/1", "offset": 77, "kind": "corrupt_record", "text": "no match"},
    ]


def test_a_run_is_found_by_what_else_it_is_called(bench: Callable[..., Bench]) -> None:
    """By the label that an exporter of several logdirs gives its metrics, and by the end of its name."""
    tab = bench(a_run("exp1/digits"), a_run("exp1/letters"))
    for name in ("logs/exp1/digits", "digits"):
        assert tab.json("run", run=name)["run"] == tab.json("run", run="exp1/digits")["run"]
    assert "did you mean 'exp1/digits'?" in tab.error("run", 404, run="exp1/digit")
    assert "There is no run 'exp2'." in tab.error("run", 404, run="exp2")
