"""The program that is harmed: a training of a few variables, each of which equals the global step after every step.

What it says, a line each, flushed: ``ready STEP`` (a session is open; ``STEP`` was restored), ``torn`` (variables that
are not of one step), ``flushed STEP`` (all events up to it were flushed), ``step STEP`` (a moment ago), ``left STEP``
(the block was left), ``end`` (the program's last line), ``cleaned`` (its clean-up at exit ran).
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

import supervisor_core
from benchmarks.faults.config import Config
from supervisor_core.checkpoint import blocks, saver_process
from supervisor_core.tf1 import supervisor as _supervisor  # noqa: F401 - loaded once, before the server forks

v1 = tf.compat.v1


@dataclass
class Model:
    """The graph's parts."""

    step: Any
    weights: list[Any]
    train_op: Any
    blocked: Any
    """A run of it does not return, unless the other was run before."""
    unblocked: Any


def main(values: dict[str, Any]) -> None:
    """Train as configured."""
    config = Config(**values)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    v1.disable_eager_execution()
    atexit.register(say, "cleaned")
    if config.by_process:
        blocks.MIN_BYTES, saver_process.RETRY_SECS = 1, 0.0
    with harmed(config), tf.Graph().as_default():
        model = build(config)
        if config.facade == "supervisor":
            supervise(config, model)
        else:
            monitor(config, model)
    say("end")


def say(*words: object) -> None:
    """Say a line on standard output, at once and whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def build(config: Config) -> Model:
    """Add the model to the default graph."""
    step = v1.get_variable(
        "global_step", shape=(), dtype=tf.int64, initializer=v1.zeros_initializer(), trainable=False,
        use_resource=config.resource, collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.GLOBAL_STEP],
    )  # fmt: skip
    weights = [
        v1.get_variable(
            f"weight_{number}", shape=(config.floats,), initializer=v1.zeros_initializer(), use_resource=config.resource
        )
        for number in range(4)
    ]
    risen = tf.identity(v1.assign_add(step, 1))
    filled = tf.fill((config.floats,), tf.cast(risen, tf.float32))
    train_op = tf.group(*(v1.assign(weight, filled) for weight in weights))
    queue = tf.queue.FIFOQueue(1, [tf.int32], [[]])
    return Model(step, weights, train_op, queue.dequeue(), queue.enqueue(1))


def supervise(config: Config, model: Model) -> None:
    """Train under a `Supervisor`."""
    supervisor = supervisor_core.Supervisor(
        logdir=config.logdir,
        saver=v1.train.Saver(max_to_keep=config.keep),
        save_model_secs=config.save_secs,
        save_summaries_secs=0,
        stop_grace_secs=config.stop_grace_secs,
        summary_op=None,
        options=supervisor_core.Options(**config.options),
    )
    with supervisor.managed_session() as sess:
        train(config, model, sess, supervisor.should_stop, supervisor.summary_writer)
    say("left", supervisor_step(config))


def monitor(config: Config, model: Model) -> None:
    """Train under a `MonitoredTrainingSession`, with a writer of the program's own."""
    writer = supervisor_core.FileWriter(config.logdir, filename_suffix=".program")
    with supervisor_core.MonitoredTrainingSession(
        checkpoint_dir=config.logdir,
        scaffold=supervisor_core.Scaffold(saver=v1.train.Saver(max_to_keep=config.keep)),
        save_checkpoint_secs=config.save_secs,
        save_summaries_steps=0,
        log_step_count_steps=0,
        stop_grace_period_secs=config.stop_grace_secs,
        options=supervisor_core.Options(**config.options),
    ) as sess:
        train(config, model, sess, sess.should_stop, writer)
    try:
        writer.close()
    except supervisor_core.EventsWriteError as error:  # what was written may not survive a power cut
        say("unsynced", error)
    say("left", supervisor_step(config))


def supervisor_step(config: Config) -> str:
    """Return the step of what TensorFlow takes for the newest checkpoint."""
    newest = tf.train.latest_checkpoint(config.logdir)
    return "-1" if newest is None else newest.rpartition("-")[2]


def train(config: Config, model: Model, sess: Any, should_stop: Callable[[], bool], writer: Any) -> None:
    """Do the steps, and say so."""
    values = sess.run([model.step, *model.weights])
    if any((weight != values[0]).any() for weight in values[1:]):
        say("torn")
    first = step = int(values[0])
    say("ready", first)
    if config.hang == "native":  # the first run of a fetch has the longer hang timeout of compiling
        sess.run(model.unblocked)
        sess.run(model.blocked)
    pause = threading.Event()
    while config.steps is None or step < first + config.steps:
        if config.loop != "never" and should_stop():
            break
        sess.run(model.train_op)
        step += 1
        done = step - first
        writer.add_summary(v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=1.0 / step)]), step)
        if done % config.flush_every == 0:
            writer.flush()
            say("flushed", step)
        if done % 10 == 0:
            say("step", step)
        if config.clock_jump is not None and done == config.clock_jump[0]:
            set_clock(config.clock_jump[1])
        if config.fork is not None and done == 20:
            from benchmarks.faults import forked

            if forked.act(config.fork):
                return  # the child leaves the block as if training had ended
        if config.loop == "hangs" and done == 10:
            say("hangs", step)
            sess.run(model.blocked)
        if config.hang is not None and done == 80:
            from benchmarks.faults import hanging

            say("hangs", step)
            hanging.hang(config.hang, config.logdir, sess.run, model.blocked)
        pause.wait(config.pause_secs)


@contextmanager
def harmed(config: Config) -> Iterator[None]:
    """Do to the process what the trial asks for, through the standard library alone."""
    if config.lockless_host is not None:
        host = config.lockless_host

        def flock(fd: int, operation: int) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        fcntl.flock = flock  # type: ignore[assignment]
        socket.gethostname = lambda: host
    if config.clock_secs:
        set_clock(config.clock_secs)
    if config.kill_at_removal is not None:
        kill_at_removal(config.kill_at_removal, after=config.kill_after_removal)
    yield


def set_clock(secs: float, real: Callable[[], float] = time.time) -> None:
    """Set this process's wall clock off by some seconds."""
    time.time = lambda: real() + secs


def kill_at_removal(number: int, *, after: bool) -> None:
    """Kill this process at a removal of a checkpoint's file, as it is counted among them."""
    count = 0
    for name in ("remove", "unlink"):
        real = getattr(os, name)

        def removing(path: Any, *args: Any, real: Any = real, **keywords: Any) -> None:
            nonlocal count
            is_checkpoint = "model.ckpt-" in os.path.basename(os.fspath(path)) and "_temp_" not in os.fspath(path)
            count += is_checkpoint
            if is_checkpoint and count == number:
                if after:
                    real(path, *args, **keywords)
                say("dies")
                os.kill(os.getpid(), signal.SIGKILL)
            real(path, *args, **keywords)

        setattr(os, name, removing)


if __name__ == "__main__":  # python -m benchmarks.faults.training LOGDIR, or a configuration
    main(json.loads(sys.argv[1]) if sys.argv[1].startswith("{") else {"logdir": sys.argv[1]})
