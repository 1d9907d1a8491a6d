"""A small training to which one thing happens, which an alert is about. Run as a program.

    python -m benchmarks.faults.troubled TROUBLE LOGDIR CONTROL

It trains for some seconds, writes the line ``NAME WALL-TIME`` to ``CONTROL/facts`` when the thing happens, is well
again once there is a file ``CONTROL/go``, and ends as planned once there is a file ``CONTROL/end``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from supervisor_core import Options, supervise
from supervisor_core.engine.liveness_writer import LivenessWriter
from supervisor_core.engine.monitor import PaceWatch
from supervisor_core.events import EventsWriter
from supervisor_core.events.telemetry import HeartbeatRecord
from supervisor_core.training.run import Run

BEFORE_SECS = 30.0
"""How long a training is well: a watcher has looked at it by then."""
STEP_SECS = 0.1
WRONG_STEP = 250
HANG_SECS = 30.0


class Control:
    """What the one who watches the program says to it, and hears of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.launch = len(self._lines("launches")) + 1
        self._add("launches", str(os.getpid()))
        self._began = time.monotonic()

    def fact(self, name: str = "fact") -> None:
        """Write down that something happens now."""
        self._add("facts", f"{name} {time.time()!r}")

    def has(self, name: str) -> bool:
        """Say whether there is a file of that name."""
        return (self.directory / name).exists()

    def is_due(self, secs: float = BEFORE_SECS) -> bool:
        """Say whether this launch has been well for that long."""
        return time.monotonic() - self._began > secs

    def wait(self, name: str) -> None:
        """Wait for a file."""
        while not self.has(name):
            time.sleep(STEP_SECS)

    def _lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def _add(self, name: str, line: str) -> None:
        with open(self.directory / name, "a") as file:
            file.write(f"{line}\n")


class Model:
    """What is saved."""

    def __init__(self, megabytes: int = 0) -> None:
        self.steps = 0
        self.weights = bytes(megabytes << 20)

    def state_dict(self) -> dict[str, Any]:
        """Return it."""
        return {"steps": self.steps, "weights": [self.weights.hex()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it."""
        self.steps = int(state["steps"])


class Data:
    """Where the training is in its data."""

    def state_dict(self) -> dict[str, Any]:
        """Return it."""
        return {"position": 0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it."""


Happens = Callable[[Run, Control], None]


def train(
    logdir: str, control: Control, happens: Happens, *, first: int = 1, after: float = BEFORE_SECS,
    save_secs: float = 600.0, saves: bool = True, megabytes: int = 0, is_exact: bool = True, **options: Any,
) -> None:  # fmt: skip
    """Train until the file ``end`` is there.

    Args:
        logdir: the run's directory.
        control: see there.
        happens: called once, when it has trained for a while.
        first: in how many launches it happens.
        after: after how long.
        save_secs: seconds between checkpoints. One is saved besides when it is well again.
        saves: whether one is saved soon after the start, too.
        megabytes: of its checkpoints.
        is_exact: whether its state has the position in the data.
        options: see `Options`.
    """
    model = Model(megabytes)
    is_ahead, is_well = control.launch <= first, False
    state = {"model": model, **({"data": Data()} if is_exact else {})}
    kept = Options(dump_blocked_stacks=False, **options)
    with supervise(logdir, state=state, save_secs=save_secs, max_to_keep=2, options=kept) as run:
        for step in run.steps(10**9):
            model.steps += 1
            time.sleep(STEP_SECS)
            if step % 10 == 0:
                run.log("train/loss", 1.0 / (1 + step))
            if saves and control.is_due(after / 3):
                saves = False
                run.ask_for_save()
            if is_ahead and control.is_due(after):
                is_ahead = False
                happens(run, control)
            if not is_well and control.has("go"):
                is_well = True
                run.ask_for_save()
            if control.has("end"):
                run.finish()


def dies(run: Run, control: Control, signum: int = signal.SIGKILL) -> None:
    """As the kernel ends a process."""
    control.fact()
    os.kill(os.getpid(), signum)


def meets_a_wrong_line(logdir: str, control: Control) -> None:
    """It fails at the same step in each launch."""
    model = Model()
    with supervise(logdir, state={"model": model, "data": Data()}, save_secs=10.0) as run:
        for step in run.steps(10**9):
            model.steps += 1
            time.sleep(STEP_SECS)
            if step == WRONG_STEP:
                control.fact()
                raise ValueError("no such class: 'okapi'")


def hangs(run: Run, control: Control) -> None:
    """As a loader does that waits for a worker which is gone."""
    control.fact()
    load_the_next_batch(control)


def load_the_next_batch(control: Control) -> None:
    """Return when it may."""
    control.wait("go")


def diverges(run: Run, control: Control) -> None:
    """A loss is NaN until the file ``go`` is there."""
    control.fact()
    while not control.has("go"):
        run.log("train/loss", float("nan"))
        time.sleep(STEP_SECS)
        run.moved()
    run.log("train/loss", 0.5)


def says(run: Run, control: Control) -> None:
    """It says itself what is wrong."""
    control.fact()
    run.notify("accuracy fell below 0.5 on the validation data", "page")


def saves_often(logdir: str, control: Control) -> None:
    """Its newest checkpoint is damaged when it dies; then it saves rarely."""
    is_first = control.launch == 1
    train(logdir, control, damages, save_secs=10.0 if is_first else 600.0, saves=is_first)


def damages(run: Run, control: Control) -> None:
    """Cut the newest checkpoint by half, and kill the process."""
    run.wait_until_saved()
    newest = run.newest_checkpoint
    assert newest is not None
    largest = max(Path(newest).iterdir(), key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)
    dies(run, control)


def finishes(run: Run, control: Control) -> None:
    """It is done; a later launch has nothing to do."""
    control.fact()
    run.finish()


def waits(run: Run, control: Control) -> None:
    """Say that it is time: the one who watches the program does it."""
    (control.directory / "ready").touch()


def works(logdir: str, task: str, slow: float = 1.0) -> None:
    """Be another process of the cluster: it works on its own steps."""
    session, steps = uuid.uuid4().hex[:16], 0
    beats = LivenessWriter(logdir, task, session, interval_secs=5.0, phase="training")
    beats.start()
    watch = PaceWatch(lambda: steps)
    watch.start()
    while True:
        time.sleep(STEP_SECS * slow)
        steps += 1
        if steps % 20 == 0:
            beats.write(HeartbeatRecord(session=session, phase="training", step=steps, steps=steps, pace=watch.pace()))


def has_a_service_that_fails(logdir: str, control: Control) -> None:
    """Under the original's `Supervisor`, with a service of the program's own that fails for good."""
    import tensorflow as tf

    import supervisor_core

    def service() -> None:
        if control.is_due():
            control.fact()
            raise RuntimeError("the evaluation's queue is closed")

    with tf.Graph().as_default():
        rise = tf.compat.v1.assign_add(tf.compat.v1.train.get_or_create_global_step(), 1)
        options = Options(service_errors="continue")
        supervisor = supervisor_core.Supervisor(logdir=logdir, summary_op=None, options=options)
        with supervisor.managed_session() as sess:
            supervisor.loop(1.0, service)
            while not supervisor.should_stop() and not control.has("end"):
                sess.run(rise)
                time.sleep(STEP_SECS)


def loses_its_parameter_server(logdir: str, control: Control) -> None:
    """Under `MonitoredTrainingSession`; the server is away three times."""
    import tensorflow as tf

    import supervisor_core

    class Losing(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
        times = 0

        def before_run(self, run_context: Any) -> None:
            if self.times < 3 and control.is_due(BEFORE_SECS + 10.0 * self.times):
                self.times += 1
                control.fact()
                raise tf.errors.UnavailableError(None, None, "Connection refused: ps-0:2222")

    with tf.Graph().as_default():
        rise = tf.compat.v1.assign_add(tf.compat.v1.train.get_or_create_global_step(), 1)
        with supervisor_core.MonitoredTrainingSession(checkpoint_dir=logdir, hooks=[Losing()]) as sess:
            while not sess.should_stop() and not control.has("end"):
                sess.run(rise)
                time.sleep(STEP_SECS)


def writes_only(logdir: str, control: Control) -> None:
    """Another writer's run, of which no state is known; it stops writing and stays."""
    step = 0
    with EventsWriter(logdir) as writer:
        while not control.is_due(3 * BEFORE_SECS):
            step += 1
            writer.scalar("train/loss", 1.0 / step, step)
            writer.flush()
            time.sleep(1.0)
        control.fact()
        control.wait("end")


def cannot_begin(logdir: str, control: Control) -> None:
    """It ends before its first event."""
    time.sleep(BEFORE_SECS)
    control.fact()
    raise ConnectionRefusedError("the data server does not answer")


TROUBLES: dict[str, Callable[[str, Control], None]] = {
    "killed": partial(train, happens=dies, is_exact=False),
    "killed-restarter": partial(train, happens=waits),
    "together": partial(train, happens=waits),
    "fails": meets_a_wrong_line,
    "suspended": partial(train, happens=partial(dies, signum=signal.SIGSTOP), after=2 * BEFORE_SECS),
    "hangs": partial(train, happens=hangs, hang_timeout_secs={"training": HANG_SECS}),
    "observed": partial(train, happens=hangs, hang_timeout_secs={"training": HANG_SECS}),
    "loops": partial(train, happens=dies, first=3, save_secs=3600.0),
    "preempted": partial(train, happens=waits),
    "full-disk": partial(train, happens=waits, save_secs=5.0),
    "low-disk": partial(train, happens=waits, megabytes=3, after=BEFORE_SECS / 3),
    "diverges": partial(train, happens=diverges),
    "says": partial(train, happens=says),
    "damaged": saves_often,
    "nothing-to-do": partial(train, happens=finishes),
    "gone": partial(train, happens=waits),
    "unreadable": partial(train, happens=waits),
    "loses-a-worker": partial(train, happens=waits),
    "straggles": partial(train, happens=waits, after=BEFORE_SECS / 3),
    "service": has_a_service_that_fails,
    "recovers": loses_its_parameter_server,
    "silent": writes_only,
    "not-starting": cannot_begin,
}
"""By name: what happens."""


def main(trouble: str, logdir: str, control: str) -> None:
    """Train until it happens, and on."""
    if trouble == "worker":
        works(logdir, control)
    elif trouble == "slow-worker":
        works(logdir, control, slow=3.0)
    else:
        TROUBLES[trouble](logdir, Control(Path(control)))


if __name__ == "__main__":
    main(*sys.argv[1:])
