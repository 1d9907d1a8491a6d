from __future__ import annotations

from collections.abc import Callable

import pytest

from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.snapshot import WatchedRun
from tests.tb_plugin.conftest import NOW, Bench, FakeWatch, a_rich_run, a_run, a_session, changed, watched


def names(answer: dict[str, list[dict[str, str]]]) -> list[str]:
    """The runs in an answer."""
    return [row["run"] for row in answer["runs"]]


def test_a_line_says_how_a_run_is(bench: Callable[..., Bench]) -> None:
    """A run's line: its newest session's phase and interval, its newest good checkpoint, what is sick or stalled."""
    answer = bench(a_rich_run()).json("runs")
    finding = answer["runs"][0].pop("finding")
    assert (finding["kind"], finding["severity"], finding["since"]) == ("worker_lost", "warn", NOW - 20)
    assert answer["runs"] == [
        {
            "run": "a",
            "state": "running",
            "standing": "needs_you",
            "more_findings": 3,
            "inferred": False,
            "phase": "training",
            "step": 200,
            "steps_per_sec": None,
            "rates": [1.0, 2.0],
            "started": NOW - 600,
            "clock_skew_secs": None,
            "last_event": NOW - 1,
            "checkpoint_at": NOW - 20,
            "checkpoint_step": 180,
            "checkpoint_interval_secs": 60.0,
            "checkpoints_failing": True,
            "restarts": 1,
            "recoveries": 1,
            "goodput": 0.125,
            "at_risk_steps": 12,
            "sick_threads": 1,
            "workers": 2,
            "sick_workers": 1,
            "labels": {"team": "vision"},
            "stalled_since": NOW - 30,
            "problem": None,
        }
    ]
    assert (answer["at"], answer["logdir"], answer["reading"], answer["problems"]) == (NOW, "/runs", None, [])


def test_what_is_said_changes_with_age_alone(bench: Callable[..., Bench]) -> None:
    """A death of yesterday needs nobody any more: the line of a run that writes nothing is sent again for that, and for
    nothing else."""
    watch = FakeWatch(watched(a_run(state="lost", sessions=(a_session("one", outcome="lost"),))))
    tab = bench(watch)
    generation = tab.json("runs")["generation"]
    watch.at = NOW + 3_600
    tab.index.refresh()
    assert names(tab.json("runs", since=generation)) == []
    watch.at = NOW + 90_000
    tab.index.refresh()
    (row,) = tab.json("runs", since=generation)["runs"]
    assert (row["standing"], row["finding"]["severity"]) == ("over", "info")
    assert tab.json("run", run="a")["findings"][0]["severity"] == "info"


def test_a_fault_of_ours_costs_what_is_said_of_one_run(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that cannot be judged is unknown, not fine, and all else is shown; the log has why, once."""

    def judged(watched: WatchedRun, now: float) -> tuple[Finding, ...]:
        if watched.run.name == "odd":
            raise ZeroDivisionError("what a pity")
        return findings(watched, now)

    monkeypatch.setattr("tb_plugin.index.findings", judged)
    watch = FakeWatch(watched(a_run("odd", step=7)), watched(a_run("sick", loss_finite=False)))
    tab = bench(watch)
    watch.at = NOW + 600
    tab.index.refresh()
    odd, sick = tab.json("runs")["runs"]
    assert (odd["standing"], odd["finding"], odd["more_findings"], odd["step"]) == ("unknown", None, None, 7)
    assert (sick["standing"], sick["finding"]["kind"]) == ("needs_you", "loss_not_finite")
    assert tab.json("run", run="odd")["findings"] is None
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_only_what_changed_since_is_sent(bench: Callable[..., Bench]) -> None:
    """With ``since`` come the runs that changed after it, and those that went; without it, all."""
    watch = FakeWatch(*(watched(a_run(name)) for name in ("a", "b", "c")))
    tab = bench(watch)
    first = tab.json("runs")
    assert (names(first), first["full"]) == (["a", "b", "c"], True)
    tab.index.refresh()
    again = tab.json("runs", since=first["generation"])
    assert (again["generation"], names(again), again["removed"], again["full"]) == (first["generation"], [], [], False)
    watch.runs["b"] = changed(a_run("b"), step=7)
    del watch.runs["c"]
    watch.runs["d"] = watched(a_run("d"))
    tab.index.refresh()
    later = tab.json("runs", since=first["generation"])
    assert later["generation"] > first["generation"]
    assert (names(later), later["removed"]) == (["b", "d"], ["c"])
    assert names(tab.json("runs", since=later["generation"])) == []
    assert names(tab.json("runs")) == ["a", "b", "d"]


def test_who_remembers_another_tensorboard_gets_everything(bench: Callable[..., Bench]) -> None:
    """A generation of a TensorBoard that was started earlier, or later, is none of this one's."""
    tab = bench(a_run("a"))
    generation = tab.json("runs")["generation"]
    for foreign in (0, 17, generation - 5_000, generation + 5_000):
        answer = tab.json("runs", since=foreign)
        assert (names(answer), answer["full"]) == (["a"], True)


def test_more_runs_gone_than_are_remembered(bench: Callable[..., Bench]) -> None:
    """Who asks since before what is remembered gets everything, rather than runs that are no more."""
    watch = FakeWatch(*(watched(a_run(f"{number:04}")) for number in range(1_500)))
    tab = bench(watch)
    first = tab.json("runs")["generation"]
    for _ in range(3):
        for name in list(watch.runs)[:450]:
            del watch.runs[name]
        tab.index.refresh()
    answer = tab.json("runs", since=first)
    assert (answer["full"], len(answer["runs"]), answer["removed"]) == (True, 150, [])
    assert len(tab.json("runs", since=answer["generation"] - 1)["removed"]) == 450


def test_reading_for_the_first_time_is_shown(bench: Callable[..., Bench]) -> None:
    """While the first look lasts, the overview says how far it is."""
    watch = FakeWatch(*(watched(a_run(f"{number}")) for number in range(3)))
    tab = bench(watch, read=False)
    assert tab.json("runs")["reading"] == {"done": 0, "total": 0}
    seen = []
    refresh = watch.refresh

    def slowly(on_progress: Callable[[int, int], None] | None = None) -> object:
        def progress(done: int, total: int) -> None:
            assert on_progress is not None
            on_progress(done, total)
            seen.append(tab.json("runs")["reading"])

        return refresh(progress)

    watch.refresh = slowly
    tab.index.refresh()
    assert seen == [{"done": done, "total": 3} for done in (1, 2, 3)]
    assert tab.json("runs")["reading"] is None


def test_problems_of_logdir_and_run_are_shown(bench: Callable[..., Bench]) -> None:
    """What could not be read is said where it belongs."""
    broken = watched(a_run("a"), problem="/runs/a/events: no permission to read it")
    answer = bench(FakeWatch(broken, problems=("/runs/x: Permission denied",))).json("runs")
    assert answer["problems"] == ["/runs/x: Permission denied"]
    assert answer["runs"][0]["problem"] == "/runs/a/events: no permission to read it"
