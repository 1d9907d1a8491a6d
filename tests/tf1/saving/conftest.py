"""What the tests of saving share: a small model in a session, with the saver under test, and looks at its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from supervisor_core.base.options import Options
from supervisor_core.checkpoint.state_file import read_state
from supervisor_core.engine.step_lock import StepLock
from supervisor_core.tf1.checkpoint_writer import CheckpointWriter, SaveResult
from supervisor_core.tf1.session import SupervisedSession

v1 = tf.compat.v1


class Bench:
    """A small model in a session, and the saver under test."""

    def __init__(self, graph: Any, directory: Path, *, resource: bool = True, size: int = 4, **changes: Any) -> None:
        directory.mkdir(exist_ok=True)
        self.logdir = directory
        self.step_lock = StepLock()
        self.step = v1.get_variable("global_step", initializer=tf.constant(0, tf.int64), use_resource=resource)
        self.weight = v1.get_variable("weight", [size], initializer=v1.zeros_initializer(), use_resource=resource)
        self.train_op = tf.group(v1.assign_add(self.step, 1), v1.assign_add(self.weight, tf.ones([size])))
        self.initializer = v1.global_variables_initializer()
        target: str = changes.pop("target", "")
        make_saver: Callable[[], Any] = changes.pop("make_saver", v1.train.Saver)
        self.saver = make_saver()
        # Made here, since as a supervisor makes it, before the session.
        meta_graph = v1.train.export_meta_graph(graph=graph, saver_def=getattr(self.saver, "saver_def", None))
        arguments = {
            "graph": graph,
            "saver": self.saver,
            "save_path": str(directory / "model.ckpt"),
            "global_step": self.step,
            "meta_graph_def": meta_graph,
            "step_lock": self.step_lock,
            "options": Options(),
        }
        self.checkpoints = CheckpointWriter(**{**arguments, **changes})
        self.session = SupervisedSession(target, graph=graph, step_lock=self.step_lock)
        self.session.run(self.initializer)

    def train(self, steps: int = 1) -> None:
        """Do this many steps."""
        for _ in range(steps):
            self.session.run(self.train_op)

    def save(self, steps: int = 1) -> SaveResult:
        """Do this many steps and save; a failure is an error of the test."""
        self.train(steps)
        result = self.checkpoints.save(self.session, "timer")
        assert result.error is None, result.error
        return result

    def names(self) -> list[str]:
        """What is in the logdir."""
        return sorted(path.name for path in self.logdir.iterdir())

    def listed(self) -> list[str]:
        """What the state file lists, as it is written there."""
        state = read_state(self.logdir / "checkpoint").state
        return [] if state is None else list(state.all_model_checkpoint_paths)


@pytest.fixture
def bench(graph: Any, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Returns a function that makes a `Bench`, in the test's own graph and directory unless it is given others."""
    made: list[Bench] = []

    def make(**changes: Any) -> Bench:
        made.append(Bench(changes.pop("graph", graph), changes.pop("directory", tmp_path / "run"), **changes))
        return made[-1]

    yield make
    for each in made:
        each.session.close()


@pytest.fixture
def files() -> Callable[[int], list[str]]:
    """Returns a function that names the files of the checkpoint of a step."""
    return lambda step: [f"model.ckpt-{step}{suffix}" for suffix in (".data-00000-of-00001", ".index", ".meta")]


@pytest.fixture
def value() -> Callable[..., Any]:
    """Returns a function that reads a tensor of a checkpoint: the weight, or another by its name."""

    def read(path: str | os.PathLike[str], name: str = "weight") -> Any:
        return tf.train.load_checkpoint(os.fspath(path)).get_tensor(name).tolist()

    return read
