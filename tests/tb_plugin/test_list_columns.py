"""The columns that the list of runs may have besides its own."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.run.model.run import TagValues
from tb_plugin import backend as list_columns
from tests.cases import each
from tests.tb_plugin.conftest import LOGDIR, NOW, Bench, a_run, a_session, watched
from tests.tb_plugin.test_contract import SECTIONS


def values(**tags: float) -> TagValues:
    """The newest values of a run."""
    return TagValues(tuple(sorted(tags)), array("q", [7] * len(tags)), array("d", [tags[tag] for tag in sorted(tags)]))


@pytest.fixture
def three(bench: Callable[..., Bench]) -> Bench:
    """Two runs with something of everything, and one of which nothing is known."""
    session = a_session("one", host="node-7", facade="supervise", world_size=2, versions={"torch": "2.13"})
    return bench(
        a_run(
            "a",
            sessions=(session,),
            tag_values=values(loss=0.25, acc=0.5),
            hparams={"lr": 0.1, "amp": True},
            labels={"team": "vision"},
        ),
        a_run("b", tag_values=values(loss=float("nan")), hparams={"lr": 0.2, "optimizer": "adam"}),
        a_run("c"),
    )


def test_fields_are_what_runs_have(three: Bench) -> None:
    """Each with the number of runs that have it, those that most have first."""
    found = three.json("fields")
    assert [(each["key"], each["runs"]) for each in found["fields"]] == [
        ("duration", 1),
        ("host", 1),
        ("started", 1),
        ("tag:loss", 2),
        ("tag:acc", 1),
        ("hparam:lr", 2),
        ("hparam:amp", 1),
        ("hparam:optimizer", 1),
        ("label:team", 1),
        ("version:torch", 1),
        ("recorded:facade", 1),
        ("recorded:world_size", 1),
    ]
    assert found["left_out"] == 0


def test_columns_have_the_values(three: Bench) -> None:
    """By run; one that has none is not there, and a value that is no number is known all the same."""
    found = three.json("columns", key=["tag:loss", "hparam:amp", "started", "duration", "tag:none"])
    assert found["columns"] == {
        "tag:loss": {"a": 0.25, "b": "nan"},
        "hparam:amp": {"a": True},
        "started": {"a": NOW - 60},
        "duration": {"a": 60.0},
        "tag:none": {},
    }
    assert found["full"] is True


def test_only_runs_that_changed_are_sent_again(three: Bench) -> None:
    """With null where they have lost their value; hyperparameters that were found later count as a change."""
    since = three.json("columns", key="hparam:lr")["generation"]
    assert three.json("columns", key="hparam:lr", since=since)["columns"] == {"hparam:lr": {}}
    three.watches[LOGDIR].runs["a"] = watched(a_run("a", step=8))
    three.watches[LOGDIR].runs["c"] = watched(a_run("c", hparams={"lr": 0.3}))
    three.index.refresh()
    found = three.json("columns", key=["hparam:lr", "tag:loss"], since=since)
    assert found["columns"] == {"hparam:lr": {"a": None, "c": 0.3}, "tag:loss": {"a": None, "c": None}}
    assert found["full"] is False
    assert found["generation"] > since


def test_fields_are_bounded(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind the ones that most runs have are listed; the answer says how many are not."""
    monkeypatch.setattr(list_columns, "MOST_FIELDS", 2)
    tab = bench(a_run("a", tag_values=values(a=1.0, b=1.0, c=1.0)), a_run("b", tag_values=values(c=1.0)))
    found = tab.json("fields")
    assert [each["key"] for each in found["fields"]] == ["tag:c", "tag:a"]
    assert found["left_out"] == 1


@each("key", ["loss", "tag:", "tags:loss", "Duration", f"tag:{'x' * 5000}"])
def test_a_key_that_is_none_is_refused(three: Bench, key: str) -> None:
    """The answer says what came, and what a key may be."""
    text = three.error("columns", 400, key=["host", key])
    assert text.startswith(f"The argument 'key' is '{key[:80]}")
    assert "expected one of duration, started, host, or a name after one of tag:, hparam:" in text
    assert "'key' is missing" in three.error("columns", 400)
    assert "at most 50" in three.error("columns", 400, key=[f"tag:{number}" for number in range(51)])


@each("route, arguments", [("fields", {}), ("columns", {"key": ["tag:loss", "hparam:lr"]})])
def test_every_name_is_described(three: Bench, route: str, arguments: dict[str, Any]) -> None:
    """What the answers hold is in http_api.md, and the other way."""
    answer = three.json(route, **arguments)
    served = {*answer, *(name for each in answer.get("fields", ()) for name in each)}
    described = set(re.findall(r'"(\w+)":', SECTIONS[route])) - {"duration"}
    assert described == served
