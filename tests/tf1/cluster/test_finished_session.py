"""A worker that comes when its run has finished: every loop of the guide ends at once, and well."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import supervisor_core
from supervisor_core.base.options import Options
from supervisor_core.tf1.cluster.connect import FinishedSession
from tests.story.holds import Chief

v1 = tf.compat.v1
OPTIONS = Options(worker_name="worker:1", finished_wait_secs=0.0)


@pytest.fixture
def model(graph: Any, build_model: Callable[..., Any]) -> Any:
    """A worker's model."""
    with tf.device("/cpu:0"):
        return build_model()


@pytest.fixture
def logdir(logdir: str) -> str:
    """The directory of a run that has finished."""
    chief = Chief(logdir)
    chief.acquire("chief")
    chief.release("completed", last_step=7)
    return logdir


@pytest.fixture
def supervisor(model: Any, logdir: str) -> Any:
    """A worker's supervisor."""
    return supervisor_core.Supervisor(logdir=logdir, is_chief=False, options=OPTIONS)


def last_word(logdir: str) -> dict[str, Any]:
    """Return what the worker's heartbeat says."""
    word: dict[str, Any] = json.loads((Path(logdir) / ".supervisor.live" / "worker-1.json").read_bytes())
    return word


def test_nothing_can_be_run_in_it(graph: Any) -> None:
    """As when the input is exhausted, with the reason; it is closed, and can be closed and left like any other."""
    one = tf.constant(1)
    session = FinishedSession(graph, "There is nothing left to do here.")
    for run in (session.run, session.make_callable(one), session.partial_run_setup):
        with pytest.raises(tf.errors.OutOfRangeError, match="nothing left to do"):
            run(one)
    session.close()
    assert (session.graph, isinstance(session, v1.Session)) == (graph, True)
    with session, pytest.raises(tf.errors.OutOfRangeError, match="nothing left to do"):
        one.eval()


def looks(supervisor: Any, sess: Any, op: Any) -> None:
    """A loop that asks whether to stop."""
    while not supervisor.should_stop():
        sess.run(op)
        pytest.fail("it never begins")


def counts(supervisor: Any, sess: Any, op: Any) -> None:
    """A loop that counts."""
    for _ in range(3):
        sess.run(op)
        pytest.fail("it ends with its first run")


def has_no_end(supervisor: Any, sess: Any, op: Any) -> None:
    """A loop without an end."""
    while True:
        sess.run([op, op])


@pytest.mark.parametrize("loop", [looks, counts, has_no_end])
def test_a_supervised_loop_ends_at_once(
    supervisor: Any, model: Any, logdir: str, loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why, with the session that has finished the run, and how far it was."""
    with supervisor.managed_session("") as sess:
        loop(supervisor, sess, model.train_op)
    assert (last_word(logdir)["ended"], last_word(logdir)["error"]) == ("completed", None)
    assert "There is nothing left to do here: the run in" in caplog.text
    assert "session chief on" in caplog.text
    assert "ended (completed) at step 7" in caplog.text


class Noting(v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook that notes what it is called for."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self) -> None:
        self.notes.append("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.notes.append("after_create_session")

    def before_run(self, run_context: Any) -> None:
        self.notes.append("before_run")

    def end(self, session: Any) -> None:
        self.notes.append("end")


@pytest.mark.parametrize("looks", [True, False])
def test_a_monitored_loop(model: Any, logdir: str, looks: bool) -> None:
    """Never begins, or ends with its first run; no hook hears of a session that there never was, nor of its end."""
    hook, runs = Noting(), 0
    with supervisor_core.MonitoredTrainingSession(
        "", is_chief=False, checkpoint_dir=logdir, hooks=[hook], options=OPTIONS
    ) as sess:
        while not (looks and sess.should_stop()):
            sess.run(model.train_op)
            runs += 1
    assert (runs, hook.notes) == (0, ["begin"])
    assert (last_word(logdir)["ended"], last_word(logdir)["error"]) == ("completed", None)


def test_an_error_of_the_program_is_an_error(supervisor: Any, logdir: str) -> None:
    """Whatever else it does instead of training."""
    with pytest.raises(ZeroDivisionError), supervisor.managed_session(""):
        1 / 0  # noqa: B018
    assert last_word(logdir)["ended"] == "error"


def test_a_session_made_again_when_the_run_has_finished(
    graph: Any, build_model: Callable[..., Any], tmp_path: Path
) -> None:
    """A worker whose parameter servers have gone because all is done ends well."""
    logdir = str(tmp_path / "another")
    target = v1.train.Server.create_local_server().target
    with tf.device("/cpu:0"):
        model = build_model()
    options = Options(worker_name="worker:1", finished_wait_secs=0.0, retry_initial_secs=1e-3, retry_max_secs=1e-3)
    chief = Chief(logdir)
    chief.acquire("chief")
    with v1.Session(target) as sess:
        sess.run(model.global_step.initializer)
        sess.run(model.weight.initializer)

    class Gone(Noting):
        def before_run(self, run_context: Any) -> None:
            chief.release("completed", last_step=7)
            raise tf.errors.UnavailableError(None, None, "ps:0 is gone")

    scaffold = v1.train.Scaffold(ready_op=tf.constant([], tf.string))
    hook = Gone()
    runs = 0
    announced = supervisor_core.tf1.session_manager.ready_flag_for(graph)
    with v1.Session(target) as sess:
        announced.set(sess, "chief")
    with supervisor_core.MonitoredTrainingSession(
        target, is_chief=False, checkpoint_dir=logdir, scaffold=scaffold, hooks=[hook], options=options
    ) as sess:
        while not sess.should_stop():
            sess.run(model.train_op)
            runs += 1
    assert runs == 0
    assert last_word(logdir)["ended"] == "completed"
