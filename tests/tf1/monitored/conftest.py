"""Monitored sessions side by side: TensorFlow's original, whose behaviour is the promise, and ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import tensorflow as tf

import supervisor_core

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _own_graph(graph: Any) -> None:
    """Every test builds its model in a graph of its own."""


# The original reads the global step beside the step that raises it, before or after.
@pytest.fixture(params=[pytest.param("original", marks=pytest.mark.real), "ours"])
def train(request: pytest.FixtureRequest) -> Any:
    """The module that programs take the classes from: ``tf.compat.v1.train``, then ours."""
    return v1.train if request.param == "original" else supervisor_core


@dataclass
class Recorder(v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook that records its calls, and runs the test's actions."""

    name: str = "hook"
    notes: list[Any] = field(default_factory=list)
    request: Any = None
    act: dict[str, Callable[..., Any]] = field(default_factory=dict)
    __hash__ = object.__hash__

    def _do(self, phase: str, *args: Any) -> None:
        self.notes.append((self.name, phase))
        if phase in self.act:
            self.act[phase](*args)

    def begin(self) -> None:
        self._do("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._do("after_create_session", session, coord)

    def before_run(self, run_context: Any) -> Any:
        self._do("before_run", run_context)
        return self.request() if callable(self.request) else self.request

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.values = run_values
        self._do("after_run", run_context, run_values)

    def end(self, session: Any) -> None:
        self._do("end", session)


@pytest.fixture
def recorder() -> type[Recorder]:
    """The class of hooks that note what happens to them."""
    return Recorder


@pytest.fixture
def raises() -> Callable[[BaseException], Callable[..., None]]:
    """Returns a function that returns a function that raises what the first was given."""

    def raising(error: BaseException) -> Callable[..., None]:
        def act(*args: Any) -> None:
            raise error

        return act

    return raising


@pytest.fixture
def run_steps(build_model: Callable[..., Any], logdir: str) -> Callable[..., tuple[int, int]]:
    """Returns a function that trains some steps in its own graph under our `MonitoredTrainingSession`.

    It returns the first and the last step. Arguments: how many steps, what to call with ``(session, model)`` after
    them, and the session's own.
    """

    def run(steps: int = 0, body: Callable[..., object] | None = None, **arguments: Any) -> tuple[int, int]:
        with tf.Graph().as_default():
            model = build_model()
            arguments = {"checkpoint_dir": logdir, **arguments}
            with supervisor_core.MonitoredTrainingSession(**arguments) as sess:
                first = int(sess.run(model.global_step))
                for _ in range(steps):
                    sess.run(model.train_op)
                last = int(sess.run(model.global_step))
                if body is not None:
                    body(sess, model)
        return first, last

    return run


@pytest.fixture
def saved_steps() -> Callable[[str], list[int]]:
    """Returns a function that lists the steps that a directory has checkpoints of, by the state file."""

    def steps(directory: str) -> list[int]:
        state = v1.train.get_checkpoint_state(directory)
        return [] if state is None else [int(path.rpartition("-")[2]) for path in state.all_model_checkpoint_paths]

    return steps


@pytest.fixture
def session_logs(read_events: Any) -> Callable[[str], list[tuple[int, int]]]:
    """Returns a function that reads status and step of a directory's session logs."""

    def read(directory: str) -> list[tuple[int, int]]:
        events = [event for file in read_events(directory) for event in file if event.session_log.status]
        return [(event.session_log.status, event.step) for event in events]

    return read
