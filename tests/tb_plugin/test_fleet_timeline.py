"""All runs over the same time: the routes `timeline` and `incidents`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.run.model.run import Run
from tb_plugin import fleet_timeline
from tests.tb_plugin.conftest import NOW, Bench, a_rich_run, a_run, a_session, watched


def down(name: str, ago: float, host: str = "gpu-7", **how: Any) -> Run:
    """A run that was lost `ago` seconds ago."""
    session = a_session(
        name, started_at=NOW - ago - 600, ended_at=NOW - ago, outcome="lost", host=host, files=(f"/runs/{name}/e",)
    )
    return a_run(name, state="lost", sessions=(session,), last_event_at=NOW - ago, **how)


def lanes(tab: Bench, **window: float) -> dict[str, list[tuple[str, float, float]]]:
    """What is drawn of each run, in seconds before now."""
    header, columns = tab.columns("timeline", **window)
    found: dict[str, list[tuple[str, float, float]]] = {name: [] for name in header["runs"]}
    for run, kind, since, until in zip(*(columns[name] for name in ("run", "kind", "since", "until")), strict=True):
        found[header["runs"][int(run)]].append((header["kinds"][int(kind)], since - NOW, until - NOW))
    return found


def test_what_each_run_did(bench: Callable[..., Bench]) -> None:
    """Sessions, downtime, stalls, failed saves and ends, with what holds until now ending now."""
    tab = bench(a_rich_run("a"), down("b", 300.0))
    found = lanes(tab)
    assert found["a"] == [
        ("session", -600, -120),
        ("session", -60, 0),
        ("silence", -300, -250),
        ("downtime", -120, -60),
        ("stall", -30, 0),
        ("finding", -20, 0),
        ("restart", -60, -60),
        ("saves", -10, -10),
        ("lost", -120, -120),
        ("recovery", -15, -15),
    ]
    assert found["b"] == [("session", -900, -300), ("downtime", -300, 0), ("lost", -300, -300)]


def test_only_what_touches_the_window_comes(bench: Callable[..., Bench]) -> None:
    """Runs without anything in it are left out; how many there are in all is said."""
    tab = bench(a_rich_run("a"), down("b", 300.0, labels={"team": "x"}))
    assert lanes(tab, from_=NOW - 950, to=NOW - 650) == {"b": [("session", -900, -300)]}
    header, _ = tab.columns("timeline", from_=NOW - 950, to=NOW - 650)
    assert (header["all_runs"], header["host"], header["label_names"]) == (2, ["gpu-7"], ["team"])
    assert (header["incidents"], header["needs_you"]) == ([0], [0])


def test_runs_are_grouped_with_trouble_first(bench: Callable[..., Bench]) -> None:
    """By what their names begin with, by host or by label: in each group those with incidents, the most urgent first,
    then the others; the group that lost most time comes first."""
    healthy = [
        a_run(f"top/b/{n}", sessions=(a_session(f"h{n}", host="gpu-1"),), labels={"team": "y"}) for n in range(3)
    ]
    lost = [down("top/c/1", 100.0), down("top/c/2", 300.0), down("top/b/9", 200.0)]
    tab = bench(*healthy, *lost)

    def grouped(**by: str) -> list[tuple[str, list[str], list[str]]]:
        header, _ = tab.columns("timeline", **by)
        return [
            (key, *([header["runs"][index] for index in part] for part in parts)) for key, *parts in header["groups"]
        ]

    well = ["top/b/0", "top/b/1", "top/b/2"]
    assert grouped() == [("top/c", ["top/c/2", "top/c/1"], []), ("top/b", ["top/b/9"], well)]
    assert grouped(by="host") == [("gpu-7", ["top/c/2", "top/b/9", "top/c/1"], []), ("gpu-1", [], well)]
    assert [key for key, *_ in grouped(by="label:team")] == ["without team", "team=y"]
    for bad in ("colour", "label:", "prefix "):
        assert "prefix, host or label:<name>" in tab.error("timeline", 400, by=bad)


def test_a_run_that_needs_somebody_is_not_folded_away(bench: Callable[..., Bench]) -> None:
    """What is held of it is drawn, though its records do not say that something went wrong."""
    needy = a_run("needy", sessions=(a_session("n"),), loss_finite=False)
    header, _ = bench(needy, a_run("well", sessions=(a_session("w"),))).columns("timeline")
    assert (header["runs"], header["incidents"], header["needs_you"]) == (["needy", "well"], [1, 0], [0])
    assert header["groups"] == [["", [0], [1]]]


def test_without_runs(bench: Callable[..., Bench]) -> None:
    """There is nothing to draw, and nothing happened."""
    header, columns = bench().columns("timeline")
    assert (header["runs"], header["from"], columns["run"]) == ([], None, [])
    assert bench().json("incidents")["sentences"] == []


def test_copies_are_left_out(bench: Callable[..., Bench]) -> None:
    """What happened to a run happened once."""
    tab = bench(watched(down("b", 300.0)), watched(down("copy", 300.0), copy_of="b"))
    assert list(lanes(tab)) == ["b"]
    assert tab.json("incidents")["total"] == 1


def test_too_many_items_are_joined(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run and kind keeps some, over all of the time; none reaches beyond those that it stands for."""
    sessions = tuple(
        a_session(f"s{n}", started_at=NOW - 6000 + n * 10, ended_at=NOW - 5995 + n * 10, outcome="completed")
        for n in range(600)
    )
    tab = bench(a_run("a", sessions=sessions, state="completed"), down("b", 300.0))
    whole = lanes(tab)
    monkeypatch.setattr(fleet_timeline, "MOST_ITEMS", 200)
    header, columns = tab.columns("timeline")
    assert header["thinned"] is True
    assert len(columns["run"]) <= 200
    thinned = lanes(tab)
    assert thinned["b"] == whole["b"]
    spans = [item for item in thinned["a"] if item[0] == "session"]
    assert (spans[0][1], spans[-1][2]) == (-6000, whole["a"][599][2])
    assert all(since <= until for _, since, until in spans)


def test_runs_that_went_down_together(bench: Callable[..., Bench]) -> None:
    """They are one sentence, with all their names beside it; it comes before single ones."""
    tab = bench(down("single", 400.0, host="gpu-1"), *(down(f"r{n}", 300.0 - 2 * n) for n in range(14)))
    first, second = tab.json("incidents", from_=NOW - 450, to=NOW)["sentences"]
    assert first["text"].startswith("14 runs were lost within 26 s, all on gpu-7. All still down. Runs: r0, r1,")
    assert (first["at"], first["together"], first["open"], first["count"]) == (NOW - 300, True, True, 14)
    assert first["runs"] == [f"r{n}" for n in range(14)]
    assert (second["text"], second["together"]) == ("single: lost on gpu-1; not restarted.", False)
    tab.watches["/runs"].at = NOW + 2 * 86_400  # by then they are given up, though nothing has changed
    tab.index.refresh()
    assert not tab.json("incidents", from_=NOW - 450, to=NOW)["sentences"][0]["open"]


def test_sentences_are_bounded(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """How many there are in all is said; what happened together comes first."""
    monkeypatch.setattr(fleet_timeline, "MOST_SENTENCES", 2)
    tab = bench(
        *(down(f"s{n}", 5000.0 + 300 * n, host=f"h{n}") for n in range(5)),
        *(down(f"r{n}", 300.0 - n) for n in range(4)),
    )
    answer = tab.json("incidents", from_=NOW - 9000)
    assert answer["total"] == 6
    assert [item["together"] for item in answer["sentences"]] == [True, False]
