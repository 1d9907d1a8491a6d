"""The two facades side by side: TensorFlow's original, whose behaviour is the promise, and ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context


@dataclass(frozen=True)
class Facade:
    """One implementation of the four classes that programs import."""

    name: str
    Supervisor: Any
    SessionManager: Any
    Coordinator: Any
    LooperThread: Any
    logger: str


def _original() -> Facade:
    train = tf.compat.v1.train
    return Facade(
        "original", train.Supervisor, train.SessionManager, train.Coordinator, train.LooperThread, "tensorflow"
    )


def _ours() -> Facade:
    from supervisor_core.tf1.services import Coordinator, LooperThread
    from supervisor_core.tf1.session_manager import SessionManager
    from supervisor_core.tf1.supervisor import Supervisor

    return Facade("ours", Supervisor, SessionManager, Coordinator, LooperThread, "supervisor_core")


# The original has races of its own (contract, part 2), which a slow machine brings out.
@pytest.fixture(params=[pytest.param("original", marks=pytest.mark.real), "ours"])
def facade(request: pytest.FixtureRequest) -> Facade:
    """TensorFlow's classes, then ours: the test holds for both."""
    return _original() if request.param == "original" else _ours()


@pytest.fixture
def ours() -> Facade:
    """Our classes alone, where the original is wrong."""
    return _ours()


@pytest.fixture(autouse=True)
def _graph_mode(monkeypatch: pytest.MonkeyPatch, graph: Any) -> None:
    """A graph of the test's own, and threads in graph mode, as after `tf.compat.v1.disable_eager_execution`.

    Without the latter the original cannot save from its checkpoint thread. The guide's tests run without it.
    """
    monkeypatch.setattr(context, "default_execution_mode", context.GRAPH_MODE)


class Sessions:
    """Notes which TensorFlow sessions are opened and closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[Any] = []
        self.closed: list[Any] = []
        session = tf.compat.v1.Session
        make, close = session.__init__, session.close

        def noted_make(sess: Any, *args: Any, **kwargs: Any) -> None:
            self.opened.append(sess)
            make(sess, *args, **kwargs)

        def noted_close(sess: Any) -> None:
            if any(sess is opened for opened in self.opened):  # garbage of an earlier test closes its own
                self.closed.append(sess)
            close(sess)

        monkeypatch.setattr(session, "__init__", noted_make)
        monkeypatch.setattr(session, "close", noted_close)


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    """The sessions opened and closed from here on."""
    return Sessions(monkeypatch)


@pytest.fixture
def save_steps() -> Callable[..., list[str]]:
    """Returns a function that saves the default graph's model as plain TensorFlow does, once for each step given.

    It returns the checkpoints' prefixes. The state file holds absolute paths, as the original writes them.
    """

    def save(directory: str, model: Any, *steps: int) -> list[str]:
        os.makedirs(directory, exist_ok=True)
        saver = tf.compat.v1.train.Saver()
        initialize = tf.compat.v1.global_variables_initializer()
        with tf.compat.v1.Session() as sess:
            sess.run(initialize)
            for step in steps:
                sess.run([model.global_step.assign(step), model.weight.assign(float(step))])
                saver.save(sess, os.path.join(directory, "model.ckpt"), global_step=step)
        return [os.path.join(directory, f"model.ckpt-{step}") for step in steps]

    return save


@pytest.fixture
def train(ours: Facade, build_model: Callable[..., Any], logdir: str) -> Callable[..., tuple[int, int]]:
    """Returns a function that trains in a graph of its own, under ours, and returns the first and the last step.

    Its arguments: how many steps; what to call with ``(supervisor, sess, model)`` after them; and the supervisor's own.
    """

    def run(steps: int = 0, body: Callable[..., object] | None = None, **arguments: Any) -> tuple[int, int]:
        defaults = {"logdir": logdir, "save_model_secs": 9999, "save_summaries_secs": 0}
        with tf.Graph().as_default():
            model = build_model()
            supervisor = ours.Supervisor(**{**defaults, **arguments})
            with supervisor.managed_session() as sess:
                first = int(sess.run(model.global_step))
                for _ in range(steps):
                    sess.run(model.train_op)
                last = int(sess.run(model.global_step))
                if body is not None:
                    body(supervisor, sess, model)
        return first, last

    return run
