"""What the tests of the graph-mode facades share: a quiet TensorFlow, models, processes that train, readers, waits."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import pytest
import tensorflow as tf
from forked import Forked, ForkServer

from supervisor_core.engine.open_sessions import _OPEN
from supervisor_core.tf1.run_cache import CallableCache, RunPlan
from supervisor_core.tf1.session import SupervisedSession

TELEMETRY = "supervisor/"


class ReadEvents(Protocol):
    """Reads a logdir's events files; see `read_events`."""

    def __call__(self, logdir: str | Path, *, telemetry: bool = True) -> list[list[Any]]: ...


class WaitUntil(Protocol):
    """Waits for a condition; see `wait_until`."""

    def __call__(self, condition: Callable[[], object], timeout_secs: float = 120.0) -> None: ...


@dataclass(frozen=True)
class Model:
    """A model as small as can be: a step, and a weight that always equals it after a training step."""

    global_step: Any
    weight: Any
    train_op: Any


@dataclass(frozen=True)
class Training:
    """A program that trains in a process of its own."""

    logdir: str
    process: Forked

    def lines_until(self, start: str) -> list[str]:
        """Return the program's lines up to the first that starts so; to the last, if none does."""
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line.strip())
            if line.startswith(start):
                break
        return lines

    def close(self) -> None:
        """Leave nothing of it behind."""
        self.process.close()


@pytest.fixture(autouse=True)
def _quiet_tensorflow() -> Iterator[None]:
    """TensorFlow's warnings are not shown, this project's are: it follows TensorFlow's level unless it has its own."""
    tf.get_logger().setLevel("ERROR")
    logging.getLogger("supervisor_core").setLevel("WARNING")
    yield
    tf.get_logger().setLevel("NOTSET")
    logging.getLogger("supervisor_core").setLevel("NOTSET")


@pytest.fixture
def logdir(tmp_path: Path) -> str:
    """A directory for one run, not yet created."""
    return str(tmp_path / "run")


@pytest.fixture(autouse=True)
def _no_open_sessions() -> Iterator[None]:
    """Leave no session open that a test has left open: they would all be stopped when the tests' interpreter ends."""
    yield
    for session in reversed(_OPEN):
        session.signals.stopped()
    _OPEN.clear()


@pytest.fixture
def graph() -> Iterator[Any]:
    """A graph of the test's own, which is the default graph while the test runs."""
    with tf.Graph().as_default() as own:
        yield own


@pytest.fixture
def build_model() -> Callable[..., Model]:
    """Returns a function that adds the smallest model to the default graph."""

    def build(*, resource: bool = False, first_step: int = 0, name: str = "global_step") -> Model:
        step = tf.compat.v1.Variable(first_step, name=name, trainable=False, dtype=tf.int64, use_resource=resource)
        weight = tf.compat.v1.Variable(float(first_step), name="weight", use_resource=resource)
        risen = tf.identity(tf.compat.v1.assign_add(step, 1, use_locking=True))  # some tests train in several threads
        train_op = tf.compat.v1.assign(weight, tf.cast(risen, tf.float32)).op
        return Model(step, weight, train_op)

    return build


@pytest.fixture
def sess(graph: Any) -> Iterator[SupervisedSession]:
    """A session on the test's own graph."""
    with SupervisedSession() as session:
        yield session


@pytest.fixture
def run_cache_of() -> Callable[[SupervisedSession], CallableCache]:
    """Returns a function that returns a session's plans."""

    def get(session: SupervisedSession) -> CallableCache:
        plans = session._run_cache
        assert isinstance(plans, CallableCache)
        return plans

    return get


@pytest.fixture
def plan_of(run_cache_of: Callable[[SupervisedSession], CallableCache]) -> Callable[..., RunPlan]:
    """Returns a function that runs twice, so that there is a plan, and returns it."""

    def get(session: SupervisedSession, fetches: Any, feed_dict: Any = None) -> RunPlan:
        for _ in range(2):
            session.run(fetches, feed_dict)
        plan = run_cache_of(session).find(fetches, feed_dict)
        assert plan is not None
        return plan

    return get


@pytest.fixture
def read_events() -> ReadEvents:
    """Returns a function that parses a logdir's events files: one list of `Event` per file, the oldest first.

    With ``telemetry=False`` the supervisor's own records (tags ``supervisor/...``) are left out.
    """
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    def is_telemetry(event: Any) -> bool:
        return any(value.tag.startswith(TELEMETRY) for value in event.summary.value)

    def read(logdir: str | Path, *, telemetry: bool = True) -> list[list[Any]]:
        paths = sorted(Path(logdir).glob("*tfevents*"))
        files = [[Event.FromString(data) for data in RawEventFileLoader(str(path)).Load()] for path in paths]
        # Of files of one second the names end in the process's id, which may have begun again at 1.
        files.sort(key=lambda events: events[0].wall_time if events else 0.0)
        return [[event for event in events if telemetry or not is_telemetry(event)] for events in files]

    return read


@pytest.fixture
def read_telemetry(read_events: ReadEvents) -> Callable[[str | Path], list[Any]]:
    """Returns a function that reads a logdir's telemetry records, file by file, in order."""
    from supervisor_core.events.telemetry import from_json

    def read(logdir: str | Path) -> list[Any]:
        return [
            from_json(value.tag.removeprefix(TELEMETRY), value.tensor.string_val[0].decode())
            for events in read_events(logdir)
            for event in events
            for value in event.summary.value
            if value.tag.startswith(TELEMETRY)
        ]

    return read


@pytest.fixture
def wait_until() -> WaitUntil:
    """Returns a function that waits until a condition is true, and fails the test when that takes too long."""

    def wait(condition: Callable[[], object], timeout_secs: float = 120.0) -> None:
        pause = threading.Event()
        deadline = time.monotonic() + timeout_secs
        while not condition():
            assert time.monotonic() < deadline, f"{condition} was not true within {timeout_secs} s"
            pause.wait(0.005)

    return wait


@pytest.fixture(scope="module")
def start_training(
    tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer
) -> Iterator[Callable[..., Training]]:
    """Returns a function that starts a program with a new logdir and further arguments; it does not wait for it."""
    with ExitStack() as stack:

        def start(program: Path, *arguments: str, logdir: str | None = None) -> Training:
            logdir = logdir or str(tmp_path_factory.mktemp("process") / "run")
            training = Training(logdir, fork_server.start([str(program), logdir, *arguments]))
            stack.callback(training.close)
            return training

        yield start


@pytest.fixture
def saved_step() -> Callable[[str], int]:
    """Returns a function that returns the step of a logdir's newest checkpoint, -1 where there is none."""

    def step(logdir: str) -> int:
        newest = tf.train.latest_checkpoint(logdir)
        return -1 if newest is None else int(newest.rpartition("-")[2])

    return step


@pytest.fixture
def newest_on_disk() -> Callable[[str], int]:
    """Returns a function that returns the step of the newest checkpoint in a logdir, named by the state file or not.

    A process that is killed just before it replaces the state file has saved it all the same.
    """
    return lambda logdir: max(int(path.stem.rpartition("-")[2]) for path in Path(logdir).glob("model.ckpt-*.index"))


@pytest.fixture
def trained(
    trainings: dict[str, Training], saved_step: Callable[[str], int], wait_until: WaitUntil
) -> Callable[[str], Training]:
    """Returns a function that returns one of a module's ``trainings`` once it has saved a later step than its first."""

    def get(name: str) -> Training:
        training = trainings[name]
        assert training.lines_until("training")[-1:] == ["training"]
        wait_until(lambda: saved_step(training.logdir) > 0, 120)
        return training

    return get
