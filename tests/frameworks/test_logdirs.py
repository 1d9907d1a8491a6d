"""A logdir that is relative, deleted, renamed, or cannot be written: what each facade does, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.cli import main
from supervisor_core.engine.logdir_hold import LogdirHold
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.watch.logdir_watch import LogdirWatch

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("facade_program.py")
PAUSE = threading.Event()  # never set
NEEDS = {"Supervisor": "tensorflow", "MonitoredTrainingSession": "tensorflow", "supervise": "numpy", "keras": "torch"}
GRAPH = ("Supervisor", "MonitoredTrainingSession")
RETRIES = {"retry_initial_secs": 0.05, "retry_max_secs": 0.2, "heartbeat_secs": 1.0}
FAILURES = "supervisor_checkpoint_failures_in_a_row"
EVENTS_FAILING = "supervisor_events_failing"
RUNNING = 'supervisor_run_state{state="running"}'


def facade(name: str) -> Any:
    """A facade as a parameter; skipped where its framework is not installed."""
    kind = name.removesuffix("_apart")
    is_missing = importlib.util.find_spec(NEEDS.get(kind, kind)) is None
    return pytest.param(name, marks=pytest.mark.skipif(is_missing, reason=f"what {name} needs is not installed"))


def apart(facades: list[Any], name: str) -> list[Any]:
    """The same facades, where one of them saves elsewhere than in its logdir."""
    return [facade(f"{name}_apart") if item.values == (name,) else item for item in facades]


FACADES = [facade(name) for name in (*GRAPH, "supervise", "torch", "jax", "keras", "lightning", "transformers")]


def contents(directory: Path) -> set[Path]:
    """What is in a directory, and below it, but for temporary files."""
    return {path for path in directory.rglob("*") if ".supervisor.probe" not in path.name}


def saved_in(logdir: Path) -> bool:
    """Whether the records in a logdir are of a run that trains, and of a checkpoint that is there."""
    runs = [item.run for item in LogdirWatch(str(logdir)).refresh().runs.values()]
    return any(run.state == "running" and any(item.on_disk for item in run.checkpoints) for run in runs)


class Training:
    """The program, and what it says."""

    def __init__(
        self, starter: Any, facade: str, logdir: str | Path, cwd: Path, *, nobody: bool = False, **options: Any
    ) -> None:
        environment = {
            "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "torch", "HOME": str(cwd),
            "OPTIONS": json.dumps({**RETRIES, **options}), **({"BECOME_NOBODY": "1"} if nobody else {}),
        }  # fmt: skip
        self.log = cwd / f"log-{len(list(cwd.glob('log-*')))}"
        with self.log.open("wb") as log:
            story = ["5000", "talk=1", "every=1", *(["apart=1"] if facade.endswith("_apart") else [])]
            program = [str(PROGRAM), facade.removesuffix("_apart"), str(logdir), *story]
            self.process = starter.start(program, environment, stderr=log.fileno(), cwd=str(cwd))
        self._facade = facade

    def begin(self) -> int:
        """Return the step that it begins with."""
        found: int = self._answer("begun")["begun"]
        return found

    def do(self, command: str) -> dict[str, Any]:
        """Have it obey; return its status."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self._answer("step")

    def step_until(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Have it train until something holds of its status; return that."""
        while not holds(found := self.do("step")):
            PAUSE.wait(0.02)
        return found

    def saves(self) -> dict[str, Any]:
        """Have it train until it has saved what it has trained from now on; return its status."""
        at = self.do("step")["step"]
        return self.step_until(lambda status: (status["saved"] or 0) > at)

    def rest(self) -> None:
        """Have it train until it has saved its last step, so that no save is under way: Orbax makes every directory
        above its own that is not there."""
        found, looks = self.do("status"), 0
        while found["saved"] != found["step"]:
            PAUSE.wait(0.02)
            looks += 1
            found = self.do("step" if looks % 50 == 0 else "status")

    def delete(self, logdir: Path) -> None:
        """Delete the logdir, between two of its steps; a heartbeat meanwhile may have put a file back."""
        self.do("status")
        while logdir.exists():
            shutil.rmtree(logdir, ignore_errors=True)

    def stop(self) -> None:
        """Have it end as planned."""
        assert self.process.stdin is not None
        self.process.stdin.write("stop\n")
        self.process.stdin.close()
        assert self.process.wait(240) == 0, self.log.read_text()

    def fail(self) -> str:
        """Have it train until it has ended by an error; return what it wrote."""
        with suppress(BrokenPipeError, AssertionError):
            while True:
                self.do("step")
        assert self.process.wait(240) == 1, self.log.read_text()
        return self.log.read_text()

    def _answer(self, key: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith('{"') and key in (found := json.loads(line)):
                return dict(found)
        self.process.wait(60)
        raise AssertionError(self.log.read_text())


@pytest.fixture
def start(starter_of: Callable[[str], Any], tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Starts trainings, with a directory of their own as working directory; none outlives the test."""
    started: list[Training] = []

    def begun(facade: str, logdir: str | Path, **more: Any) -> Training:
        (tmp_path / "work").mkdir(exist_ok=True)
        started.append(Training(starter_of(facade), facade, logdir, tmp_path / "work", **more))
        return started[-1]

    yield begun
    for each in started:
        each.process.close()


@pytest.mark.parametrize("facade", FACADES)
def test_a_relative_logdir_is_the_one_that_it_was_at_the_start(facade: str, start: Any, tmp_path: Path) -> None:
    """``os.chdir`` changes nothing: all saves, and the end, are in the logdir of the first working directory, from
    which a session with another working directory resumes."""
    elsewhere, logdir = tmp_path / "elsewhere", tmp_path / "work" / "runs" / "a"
    elsewhere.mkdir()
    training = start(facade, "runs/a")
    training.begin()
    training.saves()
    training.do(f"chdir {elsewhere}")
    status = training.saves()
    assert status["failures"] == 0 and Path(status["path"]).is_relative_to(logdir)
    training.stop()
    assert list(elsewhere.iterdir()) == []
    assert start(facade, logdir).begin() >= status["saved"]


@pytest.mark.parametrize("facade", FACADES)
def test_a_logdir_that_is_deleted(facade: str, start: Any, tmp_path: Path) -> None:
    """Whether somebody makes it again or not: checkpoints and events are written again, and a second chief is refused,
    as before. Where another chief has taken the new one meanwhile, this training ends with `LogdirInUseError`."""
    logdir = tmp_path / "a"
    training = start(facade, logdir)
    training.begin()
    for is_made_again in (True, False):
        training.saves()
        training.delete(logdir)
        if is_made_again:
            logdir.mkdir(exist_ok=True)  # a save that was under way may have been faster
        status = training.saves()
        assert Path(status["path"]).is_relative_to(logdir)
        training.step_until(lambda status: saved_in(logdir))
        with pytest.raises(LogdirInUseError):
            LogdirHold(logdir).acquire("second")
    other = LogdirHold(tmp_path / "other")
    other.acquire("other")
    while not logdir.exists() or (tmp_path / "other").exists():  # a save may put its own back before the other is there
        training.delete(logdir)
        with suppress(OSError):
            (tmp_path / "other").rename(logdir)
    assert f"The logdir {logdir} was taken over by" in training.fail()
    other.release()


@pytest.mark.parametrize("facade", apart(FACADES, "transformers"))
def test_a_logdir_that_is_renamed(facade: str, start: Any, tmp_path: Path) -> None:
    """Everything that shows the run says that saves and events fail, under its new name: the exporter and
    ``inspect``. The error says what happened. When the logdir is back, the training goes on in it;
    nothing is written into the renamed one, or in the old place, before."""
    runs = tmp_path / "runs"
    logdir, away = runs / "a", runs / "b"
    exporter = Exporter([LogdirWatch(str(runs))])

    def metrics(name: str = "a") -> dict[str, float]:
        exporter.refresh()
        text = exporter.scrape(TEXT).decode()
        lines = text.replace(f'{{run="{name}"}}', "").replace(f'run="{name}",', "").splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    training = start(facade, logdir)
    training.begin()
    training.saves()
    assert metrics()[FAILURES] == metrics()[EVENTS_FAILING] == 0
    training.rest()
    logdir.rename(away)
    files = contents(away)
    status = training.step_until(lambda status: status["failures"] > 2 and status["events_failing"])
    assert f"{logdir} was renamed to {away}: move it back" in status["error"]
    seen = metrics("b")
    assert (seen[FAILURES] > 2, seen[EVENTS_FAILING], seen[RUNNING]) == (True, 1, 1)
    text = CliRunner().invoke(main, ["inspect", str(runs)]).output
    assert "Checkpoints cannot be saved: OSError: The logdir" in text and "was renamed to" in text
    assert "running" in text and "lost" not in text
    assert contents(away) == files and not logdir.exists()
    away.rename(logdir)
    assert training.saves()["failures"] == 0
    training.step_until(lambda status: metrics()[EVENTS_FAILING] == metrics()[FAILURES] == 0)
    assert metrics()[RUNNING] == 1
    training.stop()
    (found,) = LogdirWatch(str(runs)).refresh().runs.values()
    assert found.run.state in ("completed", "stopped") and found.run.checkpoints[-1].ok
    assert any("was renamed to" in (item.error or "") for item in found.run.checkpoints)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can begin a training as another user")
@pytest.mark.parametrize("facade", apart([*FACADES, facade("Supervisor_apart")], "transformers"))
def test_checkpoints_that_cannot_be_written(facade: str, start: Any, tmp_path: Path) -> None:
    """Made by root, and run by another user: an error before the first step, that names the directory, its owner and
    mode, the user, and what to do."""
    logdir = tmp_path / "a"
    logdir.mkdir()
    logdir.chmod(0o777)
    ours = logdir / ".supervisor.checkpoints" if facade in GRAPH else logdir / "checkpoints"
    directory = logdir.with_name("a-checkpoints") if facade == "transformers_apart" else ours
    directory.mkdir(mode=0o755)
    text = start(facade, logdir, nobody=True).fail()
    assert f"SaveFailedError: {directory} cannot be written: Permission denied." in text
    assert "belongs to root (uid 0) and has the mode 755; this process runs as nobody (uid 65534)" in text
    assert 'Options(unwritable_checkpoints="continue")' in text
