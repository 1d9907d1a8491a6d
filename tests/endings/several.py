"""What `program.py` does with two sessions or two processes at once; each function takes the first one's training."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def second(t: Any) -> Any:
    """Return another training of the same process, with a graph and a logdir of its own."""
    with tf.Graph().as_default():
        other = type(t)(f"{t.logdir}-2", {})
        other.options = t.options
        other.supervisor()
    return other


def nested(t: Any, should_stop: Callable[[Any], bool]) -> None:
    """Train in two sessions at once."""
    t.supervisor()
    other = second(t)
    with t.sv.managed_session() as outer, other.sv.managed_session() as inner:
        t.train(outer)
        other.train(inner)
        os.write(1, b"both\n")
        while not should_stop(other.sv):
            outer.run(t.train_op)
            inner.run(other.train_op)


def nested_ask(t: Any) -> None:
    """Ask the inner one whether to stop."""
    nested(t, lambda sv: sv.should_stop())


def nested_never_ask(t: Any) -> None:
    """Ask neither."""
    nested(t, lambda sv: False)


def stopped_one_by_one(t: Any) -> None:
    """Train in two sessions without a block, until a stop is requested, and stop the first one first."""
    t.supervisor()
    other = second(t)
    first, last = t.sv.prepare_or_wait_for_session(), other.sv.prepare_or_wait_for_session()
    t.train(first)
    other.train(last)
    os.write(1, b"both\n")
    t.train_on(first, t.sv.should_stop)
    t.sv.stop()
    other.train(last)
    other.sv.stop()


def made_before_a_fork(t: Any) -> None:
    """Make a supervisor, and have a child train with it."""
    t.supervisor()
    pid = os.fork()
    if pid:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    with t.sv.managed_session() as sess:
        t.train(sess)
