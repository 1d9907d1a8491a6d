"""A training that hangs is ended by its own watchdog, where the options say so: real processes."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from forked import ForkServer

from supervisor_core.events.index import LogdirIndex
from supervisor_core.run.fold.run_fold import RunFold

PROGRAM = """
import resource, sys, threading
import tensorflow as tf
from supervisor_core import Options, Supervisor
from supervisor_core.engine import hangs

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
hangs.SECOND_LOOK_SECS = 0.0
logdir, action = sys.argv[1:]
options = Options(hang_action=action, hang_timeout_secs={"evaluating": 1.0}, heartbeat_secs=1.0)
with tf.Graph().as_default():
    train_op = tf.compat.v1.assign_add(tf.compat.v1.train.create_global_step(), 1)
    sv = Supervisor(logdir=logdir, save_model_secs=3600, save_summaries_secs=0, options=options)
    with sv.managed_session() as session:
        for _ in range(5):
            session.run(train_op)
        pause = threading.Event()
        with sv.evaluating():  # which no slow step can exceed
            while not sv.should_stop():
                pause.wait(0.05 if action == "stop" else None)
"""

ENDS: dict[str, dict[str, object]] = {
    "stop": {"status": 1, "state": "failed", "outcome": "error"},
    "abort": {"status": -signal.SIGABRT, "state": "failed", "outcome": "error"},
    "kill": {"status": -signal.SIGKILL, "state": "lost", "outcome": "lost"},
}


@pytest.mark.parametrize("action", ENDS)
def test_a_training_that_hangs_is_ended(fork_server: ForkServer, tmp_path: Path, action: str) -> None:
    """``stop``: its loop, which still asks, raises the error. ``abort``: what it had learned is saved, and the stop
    record says where it hung. ``kill``: its last heartbeat says who killed it. A restart would go on from there."""
    logdir, err, end = tmp_path / "run", tmp_path / "err", ENDS[action]
    with err.open("wb") as stderr:
        process = fork_server.start(["-c", PROGRAM, str(logdir), action], stderr=stderr.fileno())
    status = process.wait()
    process.close()
    assert status == end["status"], err.read_text()
    ((name, chunks),) = LogdirIndex(str(logdir)).refresh().changed.items()
    fold = RunFold(name)
    fold.update(chunks)
    run = fold.run(time.time() + 3600)
    (session,) = run.sessions
    assert (run.state, session.outcome) == (end["state"], end["outcome"])
    assert session.beat.watchdog_acted == {action: 1}
    assert [stall.phase for stall in run.stalls] == ["evaluating"]
    if action != "kill":
        assert max(save.step or 0 for save in run.checkpoints if save.ok) == 5
        assert session.error is not None and session.error.startswith("StalledError: No progress for ")
        assert "in the phase evaluating" in session.error
