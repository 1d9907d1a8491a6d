"""The two facades side by side: TensorFlow's original, whose behaviour is the promise, and ours."""

from __future__ import annotations

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
    from supervisor_core.tf1.coordinator import Coordinator, LooperThread
    from supervisor_core.tf1.session_manager import SessionManager
    from supervisor_core.tf1.supervisor import Supervisor

    return Facade("ours", Supervisor, SessionManager, Coordinator, LooperThread, "supervisor_core")


@pytest.fixture(params=["original", "ours"])
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
