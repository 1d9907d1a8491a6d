"""`open_run` and `open_runs`: what files hold, as plain objects and tables."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import supervisor_core
from supervisor_core.base.errors import EventsError
from supervisor_core.events.telemetry import CheckpointRecord, SessionRecord, StopRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter
from tests.conftest import StillClock

arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
START = 1_795_222_244.0
LOGDIRS = Path(__file__).parents[3] / "shared" / "logdirs"


def write(run: Path, session: str, attempt: int, steps: range, at: float, tag: str = "loss") -> None:
    """A session that wrote a value each step, saved at its end, and failed."""
    with EventsWriter(run, clock=StillClock(at)) as writer:
        record = SessionRecord(
            session=session, attempt=attempt, started_at=at, restored_step=steps.start if attempt > 1 else None
        )
        writer.summary(summary_bytes(record), steps.start)
        for step in steps:
            writer.scalar(tag, step / 4, step)
        last = steps[-1]
        writer.summary(summary_bytes(CheckpointRecord(session=session, trigger="final", path="m", step=last)), last)
        writer.summary(summary_bytes(StopRecord(session=session, reason="error", step=last, error="E: no")), last)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A run whose second session went back by two steps; one below it; and one with another tag."""
    write(tmp_path / "logs" / "a", "a1", 1, range(5), START)
    write(tmp_path / "logs" / "a", "a2", 2, range(3, 6), START + 1000)
    write(tmp_path / "logs" / "a" / "eval", "e1", 1, range(2), START)
    write(tmp_path / "logs" / "b", "b1", 1, range(1), START, "acc")
    return tmp_path / "logs"


def test_a_run_is_plain_objects(logs: Path) -> None:
    """Of its own directory only, by the directory's name."""
    run = supervisor_core.open_run(logs / "a")
    assert (run.name, run.directory, run.state, run.problems) == ("a", str(logs / "a"), "failed", ())
    assert [(session.id, session.first_step, session.last_step) for session in run.sessions] == [
        ("a1", None, 4),
        ("a2", 3, 5),
    ]
    assert [(restart.from_step, restart.to_step, restart.reason) for restart in run.restarts] == [(4, 3, "error")]
    assert [saved.step for saved in run.checkpoints] == [4, 5]
    assert run.findings[0].kind == "failed" and "E: no" in run.findings[0].sentence
    assert run.model.steps_lost == 1 and run.tags == ("loss",)
    assert repr(run) == "<run 'a': failed, step 5, 2 sessions, 1 restart>"
    assert supervisor_core.open_run(next((logs / "a").glob("*tfevents*"))).sessions == run.sessions


def test_scalars_are_a_table(logs: Path) -> None:
    """Every value in its order, with its session, whether it was kept, and when the run had run for how long."""
    table = supervisor_core.open_run(logs / "a").scalars("loss")
    assert table.schema.names == ["step", "wall_time", "running_time", "value", "session", "kept"]
    assert table["step"].to_pylist() == [0, 1, 2, 3, 4, 3, 4, 5]
    assert table["value"].to_pylist() == [0.0, 0.25, 0.5, 0.75, 1.0, 0.75, 1.0, 1.25]
    assert table["session"].to_pylist() == ["a1"] * 5 + ["a2"] * 3
    assert table["kept"].to_pylist() == [True] * 4 + [False] + [True] * 3
    assert set(table["wall_time"].to_pylist()) == {START, START + 1000}
    assert table["running_time"].to_pylist() == [0.0] * 8


def test_scalars_of_all_runs_are_one_table(logs: Path) -> None:
    """Of those that have the tag, with the name of each."""
    runs = supervisor_core.open_runs(logs)
    assert (runs.names, len(runs), runs.problems) == (("a", "a/eval", "b"), 3, ())
    table = runs.scalars("loss")
    assert table.schema.names[0] == "run" and table["run"].to_pylist() == ["a"] * 8 + ["a/eval"] * 2
    assert table.drop_columns("run").slice(0, 8).to_pylist() == runs["a"].scalars("loss").to_pylist()
    assert [run.name for run in supervisor_core.open_runs(str(logs), include="a", exclude="eval")] == ["a"]
    assert runs["eval"].name == "a/eval" and repr(runs) == f"<3 runs of {str(logs)!r}>"


def test_a_tag_in_a_few_numbers_is_of_kept_values(logs: Path) -> None:
    """As in the tab's comparison: what was done again counts once."""
    found = supervisor_core.open_run(logs / "a").summary("loss")
    assert (found.points, found.last, found.last_step, found.min, found.max_step) == (7, 1.25, 5, 0.0, 5)


def test_hyperparameters_are_the_runs(tmp_path: Path) -> None:
    """Those too that PyTorch writes into a directory of its own below the run's."""
    from tensorboard.plugins.hparams.summary import session_start_pb

    summary = session_start_pb({"lr": 0.1, "optimizer": "adam"})
    for directory in ("own", "added/1700000000.123"):
        with EventsWriter(tmp_path / directory, clock=StillClock(START)) as writer:
            writer.summary(summary.SerializeToString(), 0)
    with EventsWriter(tmp_path / "added", clock=StillClock(START)) as writer:
        writer.scalar("loss", 1.0, 1)
    for directory in ("own", "added"):
        run = supervisor_core.open_run(tmp_path / directory)
        assert dict(run.hparams) == {"lr": 0.1, "optimizer": "adam"}, directory
        assert run.versions == {} and run.name == directory


def test_a_data_frame_follows(logs: Path) -> None:
    """What pandas makes of it has the types of its columns."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    table = supervisor_core.open_run(logs / "a").scalars("loss")
    frame = table.to_pandas()
    assert frame.dtypes.astype(str).to_dict() == {
        **dict.fromkeys(("wall_time", "running_time", "value"), "float64"),
        "step": "int64",
        "session": "category",
        "kept": "bool",
    }
    assert arrow.Table.from_pandas(frame, preserve_index=False).to_pylist() == table.to_pylist()


def test_an_error_says_what_to_do(logs: Path, tmp_path: Path) -> None:
    """Each names what is there instead."""
    (logs / "notes.txt").write_text("")
    (tmp_path / "empty").mkdir()
    run, runs = supervisor_core.open_run(logs / "a"), supervisor_core.open_runs(logs)
    for call, text in (
        (lambda: supervisor_core.open_run(tmp_path / "no"), "no does not exist."),
        (lambda: supervisor_core.open_run(logs), "Below it are 3 runs: 'a', 'a/eval', 'b'. Use open_runs."),
        (lambda: supervisor_core.open_run(logs / "notes.txt"), "is a file without tfevents in its name"),
        (lambda: supervisor_core.open_run(tmp_path / "empty"), "empty has no events files: no file in it, or below"),
        (lambda: supervisor_core.open_runs(tmp_path / "empty"), "There are no events files in "),
        (lambda: supervisor_core.open_runs(logs, include="x"), "of a run whose name is asked for."),
        (lambda: run.scalars("lass"), "The run 'a' has no tag 'lass': did you mean 'loss'? There is 1 tag."),
        (lambda: runs.scalars("x"), "has a tag 'x': there are 2 tags: 'acc', 'loss'."),
        (lambda: runs["aa"], "has no run 'aa'; did you mean 'a'? It has 3 runs."),
    ):
        with pytest.raises(EventsError) as raised:
            call()
        assert text in str(raised.value)


def test_without_pyarrow_there_are_objects(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the error of a table says how to install it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    run = supervisor_core.open_run(logs / "a")
    assert len(run.sessions) == 2 and run.tags == ("loss",)
    with pytest.raises(EventsError, match=r"needs pyarrow .* or export it as \.csv: .*pip install 'pyarrow>=16'"):
        run.scalars("loss")


def test_runs_are_asked_for_by_name(logs: Path) -> None:
    """Whether there is one, too; what is no name is an error that says so."""
    runs = supervisor_core.open_runs(logs)
    assert "a/eval" in runs and "c" not in runs and 0 not in runs
    anything: Any = 0
    with pytest.raises(TypeError, match=r"by its name, not 0; list\(runs\) has them in order"):
        runs[anything]


def test_what_could_not_be_read_is_said(logs: Path) -> None:
    """The rest is there."""
    first = min((logs / "a").glob("*tfevents*"))
    damaged = bytearray(first.read_bytes())
    damaged[-5] ^= 1
    first.write_bytes(damaged)
    run = supervisor_core.open_run(logs / "a")
    assert len(run.problems) == 1 and run.problems[0].startswith(f"{first} at byte ")
    assert len(run.scalars("loss")) == 8


def test_runs_are_shown_as_a_table(tmp_path: Path) -> None:
    """Names are text; what is not known is no number; of many runs the first are shown."""
    hostile = "<img src=x onerror=alert(1)>"
    with EventsWriter(tmp_path / hostile, clock=StillClock(START)) as writer:
        writer.scalar("acc", 0.5, 7)
    shown = supervisor_core.open_runs(tmp_path)._repr_html_()
    assert "&lt;img src=x onerror=alert(1)&gt;" in shown and "<img" not in shown
    assert "<td>unknown</td><td>7</td><td>-</td><td>-</td><td>0</td><td>-</td><td>2026-11-21 00:50</td>" in shown
    for number in range(200):
        os.link(next((tmp_path / hostile).iterdir()), tmp_path / f"events.out.tfevents.{number}")
        (tmp_path / f"r{number}").mkdir()
        (tmp_path / f"events.out.tfevents.{number}").rename(tmp_path / f"r{number}" / f"events.out.tfevents.{number}")
    many = supervisor_core.open_runs(tmp_path)._repr_html_()
    assert many.count("<tr>") == 201 and "The first 200 are shown." in many


@pytest.mark.skipif(not LOGDIRS.is_dir(), reason=f"the real logdirs are not at {LOGDIRS}")
def test_values_are_those_of_tensorboard() -> None:
    """Of twenty real logdirs of many writers: each tag has the steps, wall times and values that `EventAccumulator`
    has, in its order."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    compared = 0
    for run in supervisor_core.open_runs(LOGDIRS):
        peer = EventAccumulator(run.directory, size_guidance={"scalars": 0, "tensors": 0}, purge_orphaned_data=False)
        peer.Reload()
        scalars = {tag: [(each.step, each.wall_time, each.value) for each in peer.Scalars(tag)]
                   for tag in peer.Tags()["scalars"]}  # fmt: skip
        scalars |= {tag: found for tag in peer.Tags()["tensors"] if (found := tensor_scalars(peer, tag)) is not None}
        assert set(run.tags) == set(scalars), run.name
        for tag, expected in scalars.items():
            table = run.scalars(tag)
            found = list(zip(*(table[name].to_pylist() for name in ("step", "wall_time", "value")), strict=True))
            assert [row[:2] for row in found] == [row[:2] for row in expected], (run.name, tag)
            pairs = zip((row[2] for row in found), (row[2] for row in expected), strict=True)
            assert all(ours == theirs or (math.isnan(ours) and math.isnan(theirs)) for ours, theirs in pairs)
            compared += len(expected)
    assert compared > 10_000


def tensor_scalars(peer: Any, tag: str) -> list[tuple[int, float, float]] | None:
    """The values of a tag that is a scalar written as a tensor; None of any other."""
    from tensorboard.util import tensor_util

    if peer.SummaryMetadata(tag).plugin_data.plugin_name != "scalars":
        return None
    return [
        (each.step, each.wall_time, float(tensor_util.make_ndarray(each.tensor_proto))) for each in peer.Tensors(tag)
    ]
