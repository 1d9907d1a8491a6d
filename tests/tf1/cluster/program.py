"""One process of a cluster, as `ClusterTask` reads it from TF_CONFIG. It says on standard output what it does.

Usage: program.py FACADE LOGDIR, where FACADE is Supervisor or MonitoredTrainingSession. A line on standard input ends
the training without an error; with GATE set in the environment, the first one ends the chief's `init_fn`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Any

import tensorflow as tf

import supervisor_core

v1 = tf.compat.v1
OPTIONS = supervisor_core.Options(
    heartbeat_secs=0.5,
    finished_wait_secs=0.5,
    retry_initial_secs=0.2,
    retry_max_secs=1.0,
    hang_timeout_secs={"training": 3.0},
)


def main(facade: str, logdir: str) -> None:
    """Take part in the cluster's training until it is to end."""
    task = supervisor_core.ClusterTask.from_environment()
    task.start_server()
    say("serving")
    if task.is_parameter_server:
        task.serve(logdir, options=OPTIONS)
    else:
        with tf.Graph().as_default(), task.device():
            train(facade, task, logdir)
    say("the end")


def train(facade: str, task: Any, logdir: str) -> None:
    """Train; the weight rises with the step, and is another variable."""
    step = v1.train.get_or_create_global_step()
    weight = v1.get_variable("weight", initializer=0.0)
    train_op = tf.group(step.assign_add(1), weight.assign_add(1.0))
    if facade == "Supervisor":
        sv = supervisor_core.Supervisor(
            logdir=logdir,
            is_chief=task.is_chief,
            save_model_secs=0.5,
            recovery_wait_secs=0.5,
            init_fn=step_lock if os.environ.get("GATE") else None,
            options=OPTIONS,
        )
        with sv.managed_session(task.target, config=task.session_config()) as sess:
            loop(sess, sv.should_stop, step, train_op)
        return
    with supervisor_core.MonitoredTrainingSession(
        task.target,
        is_chief=task.is_chief,
        checkpoint_dir=logdir,
        config=task.session_config(),
        save_checkpoint_secs=0.5,
        options=OPTIONS,
    ) as sess:
        loop(sess, sess.should_stop, step, train_op)


def step_lock(sess: Any) -> None:
    """Keep the model half initialised until the test continues."""
    say("in init_fn")
    sys.stdin.readline()


def loop(sess: Any, should_stop: Any, step: Any, train_op: Any) -> None:
    """Train, leaving most of the machine to the others; say now and then how far it is."""
    enough, pause, runs = threading.Event(), threading.Event(), 0
    threading.Thread(target=lambda: sys.stdin.readline() and enough.set(), daemon=True).start()
    if not should_stop():
        say(f"ready at step {sess.run(step)}")
    while not should_stop() and not enough.is_set():
        sess.run(train_op)
        runs += 1
        if runs % 20 == 0:
            say(f"trained to {sess.run(step)}")
        pause.wait(0.02)


def say(text: str) -> None:
    """Say it at once."""
    print(text, flush=True)


class Say(logging.Handler):
    """Says what the supervisor waits for."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, as one line."""
        say("log " + record.getMessage().replace("\n", " "))


if __name__ == "__main__":
    log = logging.getLogger("supervisor_core")
    log.setLevel(logging.INFO)
    log.addHandler(Say())
    main(*sys.argv[1:])
