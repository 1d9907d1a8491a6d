"""A stop that is asked for while a process waits: it ends at once, as what asked for the stop would have it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import supervisor_core
from supervisor_core.base.options import Options

v1 = tf.compat.v1
OPTIONS = Options(worker_name="worker:1", retry_initial_secs=3600.0, retry_max_secs=3600.0)


def never_ready(happening: Callable[[], object]) -> Any:
    """Return a ready op that always names something missing, and has something happen when it is first looked at."""
    happenings = [happening]

    def look() -> Any:
        if happenings:
            happenings.pop()()
        return np.array([b"weight"], dtype=object)

    return v1.py_func(look, [], tf.string, stateful=True)


def interrupt() -> None:
    """Press Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def last_word(logdir: str) -> dict[str, Any]:
    """Return what the worker's heartbeat says."""
    word: dict[str, Any] = json.loads((Path(logdir) / ".supervisor.live" / "worker-1.json").read_bytes())
    return word


def supervisor(logdir: str, ready_op: Any) -> None:
    """Be a `Supervisor`'s worker."""
    sv = supervisor_core.Supervisor(
        logdir=logdir, is_chief=False, ready_op=ready_op, recovery_wait_secs=3600, options=OPTIONS
    )
    with sv.managed_session(""):
        raise AssertionError("it never begins")


def monitored(logdir: str, ready_op: Any) -> None:
    """Be a `MonitoredTrainingSession`'s worker."""
    scaffold = v1.train.Scaffold(ready_op=ready_op, ready_for_local_init_op=tf.constant([], tf.string))
    with supervisor_core.MonitoredTrainingSession(
        "", is_chief=False, checkpoint_dir=logdir, scaffold=scaffold, options=OPTIONS
    ):
        raise AssertionError("it never begins")


@pytest.mark.parametrize("worker", [supervisor, monitored])
def test_a_signal_ends_a_worker_that_waits(graph: Any, logdir: str, worker: Callable[..., None]) -> None:
    """As it would have ended the process; the stop record has the signal, not an error."""
    with pytest.raises(KeyboardInterrupt):
        worker(logdir, never_ready(interrupt))
    word = last_word(logdir)
    assert (word["ended"], word["error"], word["waiting_for"]) == ("signal", None, None)


def test_a_stop_that_the_program_asks_for_is_an_error(graph: Any, logdir: str) -> None:
    """The wait is cancelled with an error that names what it was for, also in the stop record."""
    made: list[Any] = []
    made.append(
        supervisor_core.Supervisor(
            logdir=logdir,
            is_chief=False,
            ready_op=never_ready(lambda: made[0].request_stop()),
            recovery_wait_secs=3600,
            options=OPTIONS,
        )
    )
    with (
        pytest.raises(tf.errors.CancelledError, match=r"A stop was requested while waiting for the chief .* weight"),
        made[0].managed_session(""),
    ):
        raise AssertionError("it never begins")
    assert last_word(logdir)["ended"] == "error"


def test_a_signal_ends_a_session_that_is_made_again(
    graph: Any, logdir: str, build_model: Callable[..., Any], read_telemetry: Callable[..., list[Any]]
) -> None:
    """While it waits to try again; the stop record has the signal, not the error that it was retrying."""
    model = build_model()

    class Lost(v1.train.SessionRunHook):  # type: ignore[misc]
        def before_run(self, run_context: Any) -> None:
            interrupt()
            raise tf.errors.UnavailableError(None, None, "a process is gone")

    with (
        pytest.raises(KeyboardInterrupt),
        supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, hooks=[Lost()], options=OPTIONS) as sess,
    ):
        sess.run(model.train_op)
    [stop] = [record for record in read_telemetry(logdir) if record.kind == "stop"]
    assert (stop.reason, stop.signal, stop.error) == ("signal", "SIGINT", None)


def test_a_stop_while_a_checkpoint_is_waited_for(
    graph: Any, logdir: str, build_model: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is initialised, and nothing saved, in the place of the checkpoint that was to come."""
    build_model()
    sv = supervisor_core.Supervisor(logdir=logdir, recovery_wait_secs=3600)
    found = sv.session_manager._context

    class Stopping(type(found)):  # type: ignore[misc]
        def waiting_for(self, what: str | None) -> None:
            sv.request_stop()

    found.__class__ = Stopping
    with pytest.raises(tf.errors.CancelledError, match="while waiting for a checkpoint to be available"):
        sv.prepare_or_wait_for_session("", wait_for_checkpoint=True)
    sv.stop()
    assert v1.train.latest_checkpoint(logdir) is None
