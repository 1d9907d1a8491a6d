"""AbortedError and UnavailableError: the TensorFlow session is made again, within bounds, and recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import supervisor_core

v1 = tf.compat.v1
LOST = [tf.errors.AbortedError, tf.errors.UnavailableError]
QUICK = {"retry_initial_secs": 1e-3, "retry_max_secs": 1e-3}


def lost(kind: Any = tf.errors.UnavailableError) -> Exception:
    """Return what a run raises when a process of the cluster is gone."""
    error: Exception = kind(None, None, "a process is gone")
    return error


class Losing(v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook whose phase raises when it is gone through for the n-th time."""

    def __init__(self, phase: str, times: tuple[int, ...], kind: Any = tf.errors.UnavailableError) -> None:
        self._phase, self._times, self._kind = phase, times, kind
        self.count = 0
        self.sessions: list[Any] = []

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.sessions.append(session)
        self._do("after_create_session")

    def before_run(self, run_context: Any) -> None:
        self._do("before_run")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._do("after_run")

    def _do(self, phase: str) -> None:
        if phase == self._phase:
            self.count += 1
            if self.count in self._times:
                raise lost(self._kind)


@pytest.fixture
def training(train: Any, logdir: str) -> Callable[..., Any]:
    """Returns a function that opens a `MonitoredTrainingSession` that saves every second step."""
    ours = {"options": supervisor_core.Options(**QUICK)} if train is supervisor_core else {}

    def opened(*hooks: Any) -> Any:
        return train.MonitoredTrainingSession(checkpoint_dir=logdir, hooks=hooks, save_checkpoint_steps=2, **ours)

    return opened


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("phase", ["before_run", "after_run"])
def test_a_lost_session_is_made_again_and_the_run_repeated(
    training: Any, build_model: Any, kind: Any, phase: str
) -> None:
    """From the newest checkpoint; hooks get the new session, and ``begin`` is not called again."""
    model = build_model()
    hook = Losing(phase, (6,), kind)
    with training(hook) as sess:
        for _ in range(8):
            sess.run(model.train_op)
        last = sess.run(model.global_step)
    assert len(hook.sessions) == 2 and hook.sessions[0] is not hook.sessions[1]
    # Four of the five steps before the loss are on disk, or all six when it comes after the sixth run and its save.
    assert last == (4 if phase == "before_run" else 6) + 3


def test_a_loss_that_a_thread_reports_is_noticed(training: Any, build_model: Any, recorder: Any) -> None:
    """should_stop() recreates the session, and is false; the call's own error is only a consequence."""
    model = build_model()
    coords = []
    hook = recorder(act={"after_create_session": lambda session, coord: coords.append(coord)})
    wrong = tf.debugging.check_numerics(tf.constant(float("nan")), "a consequence")
    with training(hook) as sess:
        sess.run(model.train_op)
        report(coords[-1])
        assert not sess.should_stop()
        assert len(coords) == 2
        report(coords[-1])
        with pytest.raises(tf.errors.InvalidArgumentError, match="a consequence"):
            sess.run(wrong)
        assert len(coords) == 3


def report(coord: Any) -> None:
    """Report a loss as a thread does."""
    try:
        raise lost()
    except tf.errors.UnavailableError as error:
        coord.request_stop(error)


def test_losses_in_a_row_are_bounded(logdir: str, build_model: Any, read_telemetry: Any) -> None:
    """After `Options.max_recoveries` the error itself is raised; a run in between starts the count afresh."""
    model = build_model()
    hook = Losing("before_run", (2, 3, 5, 6, 7))
    options = supervisor_core.Options(max_recoveries=2, **QUICK)
    with (
        pytest.raises(tf.errors.UnavailableError, match="a process is gone"),
        supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, hooks=[hook], options=options) as sess,
    ):
        while True:
            sess.run(model.train_op)
    assert hook.count == 7
    [stop] = [record for record in read_telemetry(logdir) if record.kind == "stop"]
    assert stop.reason == "error" and "a process is gone" in stop.error


def test_a_recovery_is_a_restart_within_the_session(
    logdir: str, build_model: Any, read_telemetry: Any, saved_steps: Any
) -> None:
    """One session record, one recovery record with the lost steps; training and checkpoints go on; it is counted."""
    model = build_model()
    hook = Losing("before_run", (6, 7))
    with supervisor_core.MonitoredTrainingSession(
        checkpoint_dir=logdir, save_checkpoint_steps=2, hooks=[hook], options=supervisor_core.Options(**QUICK)
    ) as sess:
        for _ in range(8):
            sess.run(model.train_op)
        status = sess.run_status()
    records = read_telemetry(logdir)
    assert [record.kind for record in records].count("session") == 1
    recovery, another = [record for record in records if record.kind == "recovery"]
    assert (recovery.step, recovery.restored_step, recovery.losses) == (5, 4, 1)
    assert (another.step, another.restored_step) == (4, 4)
    assert recovery.error == "UnavailableError: a process is gone"
    assert recovery.restored_checkpoint == f"{logdir}/model.ckpt-4"
    assert (status.session.recoveries, status.session.attempt, status.global_step, status.steps_lost) == (2, 1, 7, 1)
    assert saved_steps(logdir)[-2:] == [6, 7]
    [stop] = [record for record in records if record.kind == "stop"]
    assert (stop.reason, stop.step) == ("completed", 7)
    read = read_run(logdir)
    [session] = read.sessions
    assert (session.recoveries, session.last_step, session.outcome) == (2, 7, "completed")


def read_run(logdir: str) -> Any:
    """Return what a reader of the logdir makes of it."""
    from supervisor_core.run.watch.logdir_watch import LogdirWatch

    watch = LogdirWatch(logdir)
    [watched] = watch.refresh().runs.values()
    return watched.run


def test_losses_while_the_first_session_is_made_are_bounded() -> None:
    """The original retries forever."""
    hook = Losing("after_create_session", tuple(range(1, 99)))
    options = supervisor_core.Options(max_recoveries=3, **QUICK)
    with pytest.raises(tf.errors.UnavailableError):
        supervisor_core.MonitoredSession(hooks=[hook], options=options)
    assert hook.count == 4


def test_the_waits_grow() -> None:
    """Each recovery in a row waits twice as long, up to the limit."""
    from supervisor_core.tf1.monitored.session import RecoveryBackoff

    backoff = RecoveryBackoff(supervisor_core.Options(retry_initial_secs=1.0, retry_max_secs=4.0))
    delays = [backoff.delay_secs(lost(), calls=7) for _ in range(4)]
    for delay, longest in zip(delays, [1.0, 2.0, 4.0, 4.0], strict=True):
        assert 0.75 * longest <= delay <= longest
    assert backoff.delay_secs(lost(), calls=8) <= 1.0


def test_a_stop_ends_the_wait(logdir: str, build_model: Any) -> None:
    """Whoever requests a stop while the next session is waited for gets the error, at once."""
    model = build_model()
    options = supervisor_core.Options(retry_initial_secs=3600.0, retry_max_secs=3600.0)
    hook = Losing("before_run", (1,))
    with (
        pytest.raises(tf.errors.UnavailableError),
        supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, hooks=[hook], options=options) as sess,
    ):
        renew = sess._runtime.new_coordinator

        def renewed() -> None:
            renew()
            sess._runtime.coord.request_stop()

        sess._runtime.new_coordinator = renewed
        sess.run(model.train_op)
