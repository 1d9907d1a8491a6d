"""Hyperparameters beside the runs that they are of, as frameworks lay them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from supervisor_core.events.hparams import HParam
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.cases import each
from tests.events.hparams_writer import framed
from tests.events.record_writer import HEAD, NAME, scalar, write


def wrote(directory: Path, *parts: bytes) -> None:
    """Write the events of one run."""
    directory.mkdir(parents=True, exist_ok=True)
    write(str(directory / NAME), HEAD, *parts)


def training(steps: int = 20) -> list[bytes]:
    """The scalars of a training."""
    return [scalar(step) for step in range(steps)]


def hparams(logdir: Path) -> dict[str, dict[str, HParam]]:
    """Those of each run below a logdir that has some."""
    runs = LogdirWatch(str(logdir)).refresh().runs
    return {name: dict(watched.run.hparams) for name, watched in runs.items() if watched.run.hparams}


def test_a_run_has_its_own(tmp_path: Path) -> None:
    """As Lightning, TensorFlow and JAX write them: whatever its neighbours have."""
    wrote(tmp_path / "a", framed({"lr": 0.1}), *training())
    wrote(tmp_path / "a" / "1700000000.5", framed({"lr": 0.5}), scalar(0))
    wrote(tmp_path / "b", framed({"lr": 0.2}), *training())
    assert hparams(tmp_path) == {"a": {"lr": 0.1}, "a/1700000000.5": {"lr": 0.5}, "b": {"lr": 0.2}}


def test_keras_writes_them_above(tmp_path: Path) -> None:
    """``run-0`` has them, ``run-0/train`` and ``run-0/validation`` the scalars; another run has none."""
    wrote(tmp_path / "run-0", framed({"lr": 0.1}))
    for name in ("run-0/train", "run-0/validation", "run-1/train"):
        wrote(tmp_path / name, *training())
    assert hparams(tmp_path) == {name: {"lr": 0.1} for name in ("run-0", "run-0/train", "run-0/validation")}


def test_those_of_the_logdir_are_of_no_other_run(tmp_path: Path) -> None:
    """What is written into the logdir itself is one run's among others."""
    wrote(tmp_path, framed({"lr": 0.1}), *training())
    wrote(tmp_path / "a", *training())
    assert hparams(tmp_path) == {".": {"lr": 0.1}}


@each("name", ["a", "."])
def test_pytorch_writes_them_below(tmp_path: Path, name: str) -> None:
    """``add_hparams`` makes a directory that is named by the time; the newest counts."""
    wrote(tmp_path / name, *training())
    wrote(tmp_path / name / "1700000000.5", framed({"lr": 0.1}), scalar(0))
    wrote(tmp_path / name / "1700000100.5", framed({"lr": 0.2}), scalar(0))
    assert hparams(tmp_path)[name] == {"lr": 0.2}


def test_what_pytorch_writes_below_is_no_training(tmp_path: Path, clock_at: Any) -> None:
    """It is not running, while the run above it is."""
    wrote(tmp_path / "a", *training())
    wrote(tmp_path / "a" / "1700000000.5", framed({"lr": 0.1}), scalar(0))
    runs = LogdirWatch(str(tmp_path), clock=clock_at(1.7e9 + 20)).refresh().runs
    assert {name: watched.run.state for name, watched in runs.items()} == {"a": "running", "a/1700000000.5": "unknown"}
    assert runs["a/1700000000.5"].run.hparams == {"lr": 0.1}


def test_a_training_below_keeps_its_own(tmp_path: Path) -> None:
    """A run that trains is another run, whose hyperparameters are not those of the run above it."""
    wrote(tmp_path / "a", *training())
    wrote(tmp_path / "a" / "1700000000.5", framed({"lr": 0.1}), *training())
    assert hparams(tmp_path) == {"a/1700000000.5": {"lr": 0.1}}


def test_a_run_that_has_not_changed_stays_the_same(tmp_path: Path) -> None:
    """The same object is handed out again; new hyperparameters make another one."""
    wrote(tmp_path / "a", *training())
    below = tmp_path / "a" / "1700000000.5"
    wrote(below, framed({"lr": 0.1}), scalar(0))
    watch = LogdirWatch(str(tmp_path))
    first, second = watch.refresh().runs, watch.refresh().runs
    assert first["a"] is second["a"]
    write(str(below / NAME), framed({"lr": 0.3}), mode="ab")
    assert watch.refresh().runs["a"].run.hparams == {"lr": 0.3}


def test_the_cache_keeps_them(tmp_path: Path, monkeypatch: Any) -> None:
    """A later process has them without reading the files again."""
    logdir, cache = tmp_path / "logs", str(tmp_path / "cache")
    wrote(logdir / "a", framed({"lr": 0.1, "amp": True, "name": "adam"}), *training())
    first = LogdirWatch(str(logdir), cache=cache)
    first.refresh()
    first.close()
    monkeypatch.setattr("supervisor_core.events.payload.hparams_of", lambda *given: {})
    found = LogdirWatch(str(logdir), cache=cache).refresh().runs["a"].run.hparams
    assert found == {"lr": 0.1, "amp": True, "name": "adam"}
