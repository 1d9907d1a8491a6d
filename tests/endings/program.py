"""A process that trains in one of many ways, and ends in one of many ways: what the rows of the table are tested with.

Usage: program.py NAME LOGDIR OPTIONS: a function below or of `several.py`, and the `Options` as a JSON object, with
``reserve_secs``, the part of the stop timeout that is kept for the last records.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import several
import tensorflow as tf

import supervisor_core
from supervisor_core import Options, Supervisor
from supervisor_core.engine import deadline, ending, signal_watch

WAIT = threading.Event()
HELD_SECS = 3600


def say(*words: object) -> None:
    """Print a line at once, whatever the process is doing."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


LET_GO, IS_STUCK = threading.Event(), threading.Event()


def hang() -> bool:
    """Be a run that does not return unless it is let go."""
    say("stuck")
    IS_STUCK.set()
    return LET_GO.wait()


class Training:
    """A model whose weight is the step, and what a program does with it."""

    def __init__(self, logdir: str, options: dict[str, Any]) -> None:
        self.logdir = logdir
        self.options = Options(**options)
        self.step = tf.compat.v1.train.get_or_create_global_step()
        self.weight = tf.compat.v1.get_variable("weight", initializer=tf.zeros([1 << 18]))
        risen = tf.cast(tf.identity(self.step.assign_add(1)), tf.float32)
        self.train_op = self.weight.assign(tf.fill([1 << 18], risen)).op
        self.stuck = tf.numpy_function(hang, [], tf.bool)
        self.sv: Any = None
        self.began = False

    def supervisor(self, **arguments: Any) -> Any:
        """Return a supervisor whose checkpoint service has saved step 0, and saves no more."""
        defaults = {"logdir": self.logdir, "save_model_secs": 9999, "save_summaries_secs": 0}
        self.sv = Supervisor(options=self.options, **{**defaults, **arguments})
        return self.sv

    def monitored(self) -> Any:
        """Return a monitored training session that has saved step 0, and saves no more."""
        return supervisor_core.MonitoredTrainingSession(
            checkpoint_dir=self.logdir, save_checkpoint_secs=9999, options=self.options
        )

    def train(self, sess: Any, steps: int = 3) -> None:
        """Do some steps, the first of them when step 0 is on the disk."""
        if not self.began and self.sv is not None and self.sv.save_path is not None:
            self.sv.save_checkpoint()
        self.began = True
        for _ in range(steps):
            sess.run(self.train_op)
        say("trained", int(sess.run(self.step)))

    def block_saves(self, sess: Any) -> None:
        """Have a run in another thread that never returns, and is under way: a snapshot waits for it."""
        threading.Thread(target=sess.run, args=(self.stuck,), daemon=True).start()
        IS_STUCK.wait()

    def train_on(self, sess: Any, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Train until a stop is asked for, if that is asked about at all: then before it says "trained", too."""
        should_stop()
        self.train(sess)
        while not should_stop():
            sess.run(self.train_op)
            WAIT.wait(0.002)
        say("left the loop at", int(sess.run(self.step)))


def clean_end(t: Training) -> None:
    """Leave the block."""
    with t.supervisor().managed_session() as sess:
        t.train(sess)


def exhausted(t: Training) -> None:
    """Come to the end of the input."""
    with t.supervisor().managed_session() as sess:
        t.train(sess)
        raise tf.errors.OutOfRangeError(None, None, "exhausted")


def requested(t: Training) -> None:
    """Ask for a stop."""
    with t.supervisor().managed_session() as sess:
        t.train(sess)
        t.sv.request_stop()


def exception(t: Training) -> None:
    """Raise."""
    with t.supervisor().managed_session() as sess:
        t.train(sess)
        raise ValueError("in the loop")


def monitored_exception(t: Training) -> None:
    """Raise in a monitored session."""
    with t.monitored() as sess:
        t.train(sess)
        raise ValueError("in the loop")


def exception_without_text(t: Training) -> None:
    """Raise something that cannot be printed."""

    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    try:
        with t.supervisor().managed_session() as sess:
            t.train(sess)
            raise UnprintableError
    except UnprintableError:
        say("caught the program's own error")
        raise


def exit_0(t: Training) -> None:
    """Exit with 0 in the loop."""
    with t.supervisor().managed_session() as sess:
        t.train(sess)
        sys.exit(0)


def exit_3(t: Training) -> None:
    """Exit with 3 in the loop."""
    with t.supervisor().managed_session() as sess:
        t.train(sess)
        sys.exit(3)


def monitored_exit_0(t: Training) -> None:
    """Exit with 0 in the loop of a monitored session."""
    with t.monitored() as sess:
        t.train(sess)
        sys.exit(0)


def asks(t: Training) -> None:
    """Ask whether to stop."""
    with t.supervisor().managed_session() as sess:
        t.train_on(sess, t.sv.should_stop)


def asks_late(t: Training) -> None:
    """Ask whether to stop for the first time when a signal has come: while its checkpoint is being saved."""
    with t.supervisor().managed_session() as sess:
        t.train(sess)
        t.block_saves(sess)
        say("asks late")
        while "supervisor-final-save" not in {thread.name for thread in threading.enumerate()}:
            WAIT.wait(0.002)
        assert not t.sv.should_stop()
        LET_GO.set()
        t.train_on(sess, t.sv.should_stop)


def monitored_asks(t: Training) -> None:
    """Ask a monitored session whether to stop."""
    with t.monitored() as sess:
        t.train_on(sess, sess.should_stop)


def unmanaged_asks(t: Training) -> None:
    """Ask whether to stop, without a block."""
    sess = t.supervisor().prepare_or_wait_for_session()
    t.train_on(sess, t.sv.should_stop)
    t.sv.stop()


def with_clean_up(train: Callable[[], None]) -> None:
    """Train as a program does that has something of its own to do at the end, whatever ends it."""
    atexit.register(say, "atexit ran")
    try:
        train()
    except KeyboardInterrupt:
        say("except KeyboardInterrupt ran")
        raise
    finally:
        say("finally ran")


def never_asks(t: Training) -> None:
    """Train on, whatever comes."""
    with t.supervisor().managed_session() as sess:
        with_clean_up(lambda: t.train_on(sess))


def monitored_never_asks(t: Training) -> None:
    """Train on in a monitored session."""
    with t.monitored() as sess:
        with_clean_up(lambda: t.train_on(sess))


def unmanaged_never_asks(t: Training) -> None:
    """Train on without a block."""
    sess = t.supervisor().prepare_or_wait_for_session()
    with_clean_up(lambda: t.train_on(sess))


def nothing_to_save(t: Training) -> None:
    """Train on without a logdir."""
    with t.supervisor(logdir=None).managed_session() as sess:
        with_clean_up(lambda: t.train_on(sess))


def lose_interrupt(sess: Any) -> None:
    """Be interrupted in a finalizer, which drops what is raised in it."""

    class Finalized:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            LET_GO.wait(60)

    Finalized()


def interrupt_lost(t: Training) -> None:
    """Lose a Ctrl-C while the session is prepared."""
    with t.supervisor(init_fn=lose_interrupt).managed_session() as sess:
        t.train(sess)


def monitored_interrupt_lost(t: Training) -> None:
    """The same in a monitored session."""
    scaffold = tf.compat.v1.train.Scaffold(init_fn=lambda scaffold, sess: lose_interrupt(sess))
    with supervisor_core.MonitoredTrainingSession(
        checkpoint_dir=t.logdir, scaffold=scaffold, options=t.options
    ) as sess:
        t.train(sess)


def hangs(t: Training) -> None:
    """Hang in a run."""
    with t.supervisor().managed_session() as sess:
        t.train(sess)
        sess.run(t.stuck)


def hangs_after_asking(t: Training) -> None:
    """Hang in a run, in a loop that asks whether to stop."""
    with t.supervisor().managed_session() as sess:
        assert not t.sv.should_stop()
        t.train(sess)
        sess.run(t.stuck)


def evaluates(t: Training) -> None:
    """Evaluate for a long time in Python, in a loop that asks whether to stop."""
    with t.supervisor().managed_session() as sess:
        assert not t.sv.should_stop()
        t.train(sess)
        say("stuck")
        WAIT.wait()


def comes_back_late(t: Training) -> None:
    """Be in a run that returns after a second Ctrl-C, when the last records are written and the process would end."""
    signal_watch.ONE_PRESS_SECS = ending.UNWIND_SECS = 0.0
    ending.AGAIN_SECS = float(HELD_SECS)
    with t.supervisor().managed_session() as sess:
        its_end, write = t.sv._lifecycle.ending, t.sv._lifecycle.ending.write_last_records

        def write_and_let_go() -> None:
            write()
            LET_GO.set()
            while not its_end.signals.interrupted:
                WAIT.wait(0.01)

        def say_when_read() -> None:  # no handler is called as long as the main thread is in native code
            while not its_end.signals._watch._episode.acted:
                WAIT.wait(0.01)
            say("handled")

        def run_until_no_save_waits() -> None:
            try:
                sess.run(t.stuck)
            finally:  # what waited for the run finds that the session has ended, and interrupts nothing
                for thread in threading.enumerate():
                    if thread.name in ("supervisor-final-save", "signal-act"):
                        thread.join()

        its_end.write_last_records = write_and_let_go
        t.train(sess)
        threading.Thread(target=say_when_read, daemon=True).start()
        with_clean_up(run_until_no_save_waits)


def waits_while_nothing_can_be_saved(t: Training) -> None:
    """Wait in Python, while a run hangs elsewhere; say when the first signal was handled. Any later one is a second,
    and the main thread has all the time that it may need to come to its `KeyboardInterrupt`."""
    signal_watch.ONE_PRESS_SECS, ending.UNWIND_SECS = 0.0, float(HELD_SECS)

    def wait() -> None:
        watch = t.sv._lifecycle.ending.signals._watch
        say("waits")
        while not watch._episode.handled:
            WAIT.wait(0.01)
        say("handled")
        WAIT.wait()

    with t.supervisor().managed_session() as sess:
        t.train(sess)
        t.block_saves(sess)
        with_clean_up(wait)


def full_disk(t: Training) -> None:
    """Ask whether to stop, on a disk where no checkpoint has room."""
    with t.supervisor(stop_grace_secs=HELD_SECS).managed_session() as sess:
        t.train(sess)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # less than the model
        t.train_on(sess, t.sv.should_stop)


def holds_the_interpreter(t: Training) -> None:
    """Hold the interpreter's lock as soon as a stop is requested."""
    with t.supervisor().managed_session() as sess:
        t.train(sess)
        t.block_saves(sess)
        t.sv.wait_for_stop()
        ctypes.PyDLL(None).sleep(HELD_SECS)


def handler_of_its_own(t: Training) -> None:
    """Have a handler for SIGTERM."""
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(7))
    with t.supervisor().managed_session() as sess:
        t.train_on(sess, t.sv.should_stop)


def handler_in_the_block(t: Training) -> None:
    """Install a handler for SIGTERM when training has begun."""
    with t.supervisor().managed_session() as sess:
        signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(7))
        t.train_on(sess)


def train_until_interrupted(t: Training, sess: Any) -> None:
    """Train, catch the interrupt, and train on."""
    try:
        t.train_on(sess)
    except KeyboardInterrupt:
        say("caught")
    t.train(sess)


def catches_interrupt(t: Training) -> None:
    """Catch an interrupt, train on, and leave the block."""
    with t.supervisor().managed_session() as sess:
        train_until_interrupted(t, sess)
        say("should stop:", t.sv.should_stop())


def catches_interrupt_and_trains_on(t: Training) -> None:
    """Catch an interrupt and train on, whatever comes."""
    with t.supervisor().managed_session() as sess:
        train_until_interrupted(t, sess)
        say("goes on")
        t.train_on(sess)


def asks_and_ends_itself(t: Training) -> None:
    """Ask whether to stop, and send the signal."""
    with t.supervisor().managed_session() as sess:
        t.train(sess)
        os.kill(os.getpid(), signal.SIGTERM)
        t.train_on(sess, t.sv.should_stop)


def left_open(t: Training) -> None:
    """End without stopping anything."""
    t.train(t.supervisor().prepare_or_wait_for_session())


BLOCKS: list[Any] = []


def block_left_open(t: Training) -> None:
    """End within a block that was entered by hand."""
    BLOCKS.append(t.supervisor().managed_session())
    t.train(BLOCKS[0].__enter__())


def monitored_left_open(t: Training) -> None:
    """End without closing the monitored session."""
    t.train(t.monitored())


def left_open_by_exception(t: Training) -> None:
    """Raise where nothing stops anything."""
    t.train(t.supervisor().prepare_or_wait_for_session())
    raise ValueError("without a stop")


def in_a_thread(t: Training) -> None:
    """Train in another thread."""
    graph = tf.compat.v1.get_default_graph()

    def run() -> None:
        with graph.as_default(), t.supervisor().managed_session() as sess:
            t.train_on(sess, t.sv.should_stop)

    thread = threading.Thread(target=run, name="trainer")
    thread.start()
    thread.join()


def forks(t: Training, open_session: Callable[[], Any], child: Callable[[], None]) -> None:
    """Train; a child does something in the block, and comes to its own end; the parent then trains on."""
    pid, status = 0, -1
    try:
        with open_session() as sess:
            t.train(sess)
            pid = os.fork()
            if not pid:
                child()
            else:
                _, status = os.waitpid(pid, 0)
                say("child ended with", os.waitstatus_to_exitcode(status))
                t.train(sess)
    finally:
        if not pid:
            say("the child left the block")
    if not pid:
        os._exit(0)


def raises() -> None:
    """Raise."""
    raise ValueError("in the child")


def fork_raises(t: Training) -> None:
    """Fork a child that raises."""
    forks(t, t.supervisor().managed_session, raises)


def fork_exits(t: Training) -> None:
    """Fork a child that exits."""
    forks(t, t.supervisor().managed_session, lambda: sys.exit(0))


def fork_leaves(t: Training) -> None:
    """Fork a child that leaves the block."""
    forks(t, t.supervisor().managed_session, lambda: None)


def monitored_fork_raises(t: Training) -> None:
    """Fork a child that raises in a monitored session."""
    forks(t, t.monitored, raises)


def monitored_fork_leaves(t: Training) -> None:
    """Fork a child that leaves the block of a monitored session."""
    forks(t, t.monitored, lambda: None)


def main(name: str, logdir: str, given: str) -> None:
    """Train as asked, and come to an end."""
    options = json.loads(given)
    ending.AGAIN_SECS, ending.RETURN_SECS = 10.0, float(HELD_SECS)  # the disk, the machine may be slow
    if "reserve_secs" in options:
        deadline.RESERVE_SHARE, deadline.RESERVE_SECS = 1.0, options.pop("reserve_secs")
    with tf.Graph().as_default():
        (globals().get(name) or getattr(several, name))(Training(logdir, options))
    say("the end")


if __name__ == "__main__":
    main(*sys.argv[1:])
