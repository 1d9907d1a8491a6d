"""What a hostile run, a hostile service and a hostile directory can do to messages about other runs."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor_core.notify import changes
from supervisor_core.notify.event import event_id
from supervisor_core.run.judge import held
from supervisor_core.run.model.program_launch import ProgramLaunch
from tests.cases import each
from tests.story.scene import BEGAN, HOUR, MINUTE, Scene, Scripted, launch, names


def test_a_run_whose_name_is_no_text_is_told(tmp_path: Path) -> None:
    """Its death is, and that it is gone, and what happens to the runs beside it."""
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff")
    for name in ("tuning", "gone"):
        Scripted(tmp_path / name, BEGAN - HOUR).train(HOUR - 10)
    shutil.copytree(tmp_path / "tuning", odd)
    shutil.rmtree(tmp_path / "tuning")
    scene = Scene(tmp_path)
    scene.look()
    shutil.rmtree(odd)
    found = scene.go_on(20 * MINUTE)
    assert sorted(names(found)) == ["page begins lost", "page begins unreachable"]


@each("name", ["\ud800", "odd\udcff"])
def test_an_id_of_what_is_no_text(name: str) -> None:
    """JSON may hold half of a character."""
    assert event_id(name, "lost") != event_id("?", "lost")


def test_a_forged_session_hides_no_death(tmp_path: Path) -> None:
    """Who writes events of another run's session, which die with it, takes no message away."""
    for user in ("ours", "theirs"):
        run = tmp_path / user / "x" / "tuning"
        Scripted(run, BEGAN - HOUR, placed={"logdir": str(run)}).train(HOUR - 10)
    scene = Scene(tmp_path)
    scene.look()
    told = scene.go_on(20 * MINUTE)
    assert [(event.run, event.kind) for event in told] == [("ours/x/tuning", "lost"), ("theirs/x/tuning", "lost")]
    assert len({event.id for event in told}) == 2


def test_a_forged_restart_hides_no_other(tmp_path: Path) -> None:
    """Likewise a session that was begun again."""
    real, forged = tmp_path / "ours" / "x" / "tuning", tmp_path / "theirs" / "x" / "tuning"
    scene, told = Scene(tmp_path), []
    for run in (real, forged):
        Scripted(run, BEGAN - HOUR, placed={"logdir": str(run)}).train(HOUR - 10)
    scene.look()
    for run in (forged, real):
        Scripted(run, scene.now + 5, attempt=2, step=5, placed={"logdir": str(run)}).train(8)
        told += scene.look(scene.now + 15)
    assert [(event.run, event.kind) for event in told] == [
        ("theirs/x/tuning", "restarted"),
        ("ours/x/tuning", "restarted"),
    ]
    assert len({event.id for event in told}) == 2


class _Compared(float):
    """A number that counts how often it is compared."""

    times = 0

    def __lt__(self, other: float) -> bool:
        _Compared.times += 1
        return float(self) < float(other)

    def __ge__(self, other: float) -> bool:
        _Compared.times += 1
        return float(self) >= float(other)


def test_thousands_of_restarts_cost_time_in_proportion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look asks for loops and launches: a run with 2,000 of each holds up no other run."""
    count = 2000
    monkeypatch.setattr(_Compared, "times", 0)
    ago = [_Compared(at) for at in range(count)]
    launches = tuple(
        ProgramLaunch(launch=f"{at}", state="end", attempt=1, started_at=at, ended_at=_Compared(at + 0.5)) for at in ago
    )
    Scripted(tmp_path, BEGAN).train(10)
    run = replace(Scene(tmp_path).watch.refresh().runs["."].run, sessions=(), launches=launches)
    assert held._loop([(at, f"{at}") for at in ago], 5, 600.0) == "4.0"
    assert len(changes.restart_keys(run)) == count - 1
    assert _Compared.times < 100 * count


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give files to others")
@each("has_telemetry", [False, True])
def test_records_of_another_users_run_take_no_id(has_telemetry: bool, tmp_path: Path) -> None:
    """Who has read a death, and writes that nothing restarts it, is told of earlier: the real one all the same."""
    real, forged = tmp_path / "ours" / "tuning", tmp_path / "theirs" / "tuning"
    scene, died = Scene(tmp_path), BEGAN - 5
    scene.look()
    for run in (real, forged):
        if has_telemetry:
            placed = {"logdir": str(real), "uid": 0 if run is real else 4711}
            Scripted(run, BEGAN - HOUR, placed=placed).train(HOUR - 5)
        if run is forged or not has_telemetry:
            launch(run, 1, BEGAN - HOUR, None if run is real else died, cause="error", action="end")
    for path in (forged.parent, forged, *forged.iterdir()):
        os.chown(path, 65534, 65534)
    told = scene.go_on(5 * MINUTE)
    if not has_telemetry:
        launch(real, 1, BEGAN - HOUR, died, cause="error", action="end")
        told += scene.go_on(5 * MINUTE)
    assert [event.run for event in told] == ["theirs/tuning", "ours/tuning"]
    assert len({event.id for event in told}) == 2
