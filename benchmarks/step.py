"""What a step costs: the same small steps in a bare session, under the original's facades, and under ours.

Every contender has a graph and a session of its own in one process, services running as they do by default, and takes
its turns between those of the others. The floor is TensorFlow's own prepared callable, called by hand. What is spent
above it is measured once more with steps that stay in the calling thread: otherwise it would mostly be seen whether
TensorFlow's threads, which doze off within microseconds, had to be woken.

    python -m benchmarks.step [--quick]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import Row, print_table
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, STEPS

OURS = "ours"
OURS_MONITORED = "our MonitoredTrainingSession"
BOTH = {OURS: "a supervised step", OURS_MONITORED: "a monitored step"}
BARE = "bare Session.run"
ORIGINAL = "original Supervisor"
MONITORED = "original MonitoredTrainingSession"
FLOOR = "a prepared callable (the floor)"
BOOKKEEPING_GOAL_US = 2.0
PAGE_GOAL_US = 0.3

# Enough for our session to have moved on to prepared callables.
WARM_UP_SECS = 4.0

Step = Callable[[], Any]
Taken = dict[str, dict[str, list[float]]]
"""Case -> contender -> microseconds per step, one number for each turn."""


def rows(quick: bool) -> Iterator[Row]:
    turns, steps = (15, 200) if quick else (60, 500)
    note = f"{turns} turns of {steps} steps"
    yield from totals(in_process(turns, steps, in_caller=False), note)
    yield from above_floor(in_process(turns, steps, in_caller=True), note)
    yield from progress_page(turns, steps)


def in_process(turns: int, steps: int, in_caller: bool) -> Taken:
    """Measure in a process of its own, as a program of TensorFlow 1's days: the original needs eager execution off."""
    command = [sys.executable, "-m", "benchmarks.step", "--measure", str(turns), str(steps), str(int(in_caller))]
    taken: Taken = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return taken


def measure_all(turns: int, steps: int, in_caller: bool) -> Taken:
    """Measure all contenders in all cases."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tensorflow as tf

    tf.compat.v1.disable_v2_behavior()
    tf.get_logger().setLevel("ERROR")
    with ExitStack() as closing:
        contenders = {name: closing.enter_context(open_it(in_caller)) for name, open_it in CONTENDERS.items()}
        return {
            case: measure({name: by_case[case] for name, by_case in contenders.items()}, turns, steps)
            for case in contenders[FLOOR]
        }


def measure(steps: dict[str, Step], turns: int, per_turn: int) -> dict[str, list[float]]:
    """Return each contender's microseconds per step, one number for each of its turns."""
    for name, step in steps.items():
        until = time.monotonic() + (WARM_UP_SECS if name in BOTH else 0.0)
        for _ in range(per_turn):
            step()
        while time.monotonic() < until:
            step()
    taken: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for turn in range(turns):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            step = steps[name]
            started = time.perf_counter()
            for _ in range(per_turn):
                step()
            taken[name].append((time.perf_counter() - started) / per_turn * 1e6)
    return taken


def totals(taken: Taken, note: str) -> Iterator[Row]:
    for case, times in taken.items():
        peers = {name: statistics.median(each) for name, each in times.items()}
        mine = {name: peers.pop(name) for name in BOTH}
        goal = "below a bare Session.run"
        for name, ours in mine.items():
            yield Row(
                "step", f"{BOTH[name]}: {case}", "us", ours, peers, goal, ours < peers[BARE], f"medians of {note}"
            )


def above_floor(taken: Taken, note: str) -> Iterator[Row]:
    for case, times in taken.items():
        best = {name: min(each) for name, each in times.items()}
        floor = best.pop(FLOOR)
        above = {name: value - floor for name, value in best.items()}
        mine = {name: above.pop(name) for name in BOTH}
        goal = f"at most {BOOKKEEPING_GOAL_US:g} us"
        for name, ours in mine.items():
            what = f"{BOTH[name]} above the floor: {case}"
            met = ours <= BOOKKEEPING_GOAL_US
            yield Row("step", what, "us", ours, above, goal, met, f"best of {note}, in the caller's thread")


def progress_page(turns: int, steps: int) -> Iterator[Row]:
    """Measure the two stores that a step costs for the progress page."""
    directory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=directory if directory.is_dir() else None) as place:
        page = ProgressPage.create(Path(place), session_id="benchmark")
        taken: dict[str, list[float]] = {"stores": [], "none": []}
        for _ in range(turns):
            started = time.perf_counter()
            for step in range(steps):
                written = page
                written.times[LAST_PROGRESS] = 1.5
                written.counts[STEPS] = step
            between = time.perf_counter()
            for _step in range(steps):
                written = page
            taken["stores"].append((between - started) / steps * 1e6)
            taken["none"].append((time.perf_counter() - between) / steps * 1e6)
        page.close()
    ours = min(taken["stores"]) - min(taken["none"])
    what, goal = "the progress page's share of a step", f"at most {PAGE_GOAL_US:g} us"
    yield Row("step", what, "us", ours, {}, goal, ours <= PAGE_GOAL_US, f"best of {turns} turns of {steps} steps")


def config(in_caller: bool) -> Any:
    """Return a session's configuration: TensorFlow's default, or one that runs operations in the calling thread."""
    import tensorflow as tf

    return tf.compat.v1.ConfigProto(inter_op_parallelism_threads=-1 if in_caller else 0)


def build() -> tuple[Any, Any, Any, Any]:
    """Add the model to the default graph: a counter, and a linear regression that is fed."""
    import tensorflow as tf

    v1 = tf.compat.v1
    step = v1.train.get_or_create_global_step()
    count = v1.assign_add(step, 1).op
    x = v1.placeholder(tf.float32, [None, 4])
    weights = v1.get_variable("weights", [4, 1])
    loss = tf.reduce_mean(tf.square(x @ weights - 1.0))
    train = v1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
    return count, x, loss, train


def cases(session: Any, count: Any, x: Any, loss: Any, train: Any) -> dict[str, Step]:
    import numpy as np

    batch = np.ones([8, 4], np.float32)
    return {
        "one operation": lambda: session.run(count),
        "a feed and two fetches": lambda: session.run([train, loss], {x: batch}),
        "a feed and a dictionary": lambda: session.run({"train": train, "loss": loss}, feed_dict={x: batch}),
    }


@contextmanager
def bare(in_caller: bool) -> Iterator[dict[str, Step]]:
    import tensorflow as tf

    with tf.Graph().as_default():
        model = build()
        with tf.compat.v1.Session(config=config(in_caller)) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            yield cases(session, *model)


@contextmanager
def floor(in_caller: bool) -> Iterator[dict[str, Step]]:
    import numpy as np
    import tensorflow as tf
    from tensorflow.core.protobuf.config_pb2 import CallableOptions

    with tf.Graph().as_default():
        count, x, loss, train = build()
        with tf.compat.v1.Session(config=config(in_caller)) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            counting = session._make_callable_from_options(CallableOptions(target=[count.name]))
            options = CallableOptions(feed=[x.name], fetch=[loss.name], target=[train.name])
            training = session._make_callable_from_options(options)
            batch = np.ones([8, 4], np.float32)
            yield dict(
                zip(cases(session, count, x, loss, train), [counting, *[lambda: training(batch)] * 2], strict=True)
            )


@contextmanager
def original(in_caller: bool) -> Iterator[dict[str, Step]]:
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as logdir, tf.Graph().as_default():
        model = build()
        supervisor = tf.compat.v1.train.Supervisor(logdir=logdir)
        with supervisor.managed_session(config=config(in_caller)) as session:
            yield cases(session, *model)


@contextmanager
def monitored(in_caller: bool) -> Iterator[dict[str, Step]]:
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as logdir, tf.Graph().as_default():
        model = build()
        with tf.compat.v1.train.MonitoredTrainingSession(checkpoint_dir=logdir, config=config(in_caller)) as session:
            yield cases(session, *model)


@contextmanager
def ours(in_caller: bool) -> Iterator[dict[str, Step]]:
    import tensorflow as tf

    from supervisor_core.base.options import Options
    from supervisor_core.tf1.supervisor import Supervisor

    with tempfile.TemporaryDirectory() as logdir, tf.Graph().as_default():
        model = build()
        supervisor = Supervisor(logdir=logdir, options=Options(handle_signals=False))
        with supervisor.managed_session(config=config(in_caller)) as session:
            yield cases(session, *model)


@contextmanager
def ours_monitored(in_caller: bool) -> Iterator[dict[str, Step]]:
    import tensorflow as tf

    from supervisor_core.base.options import Options
    from supervisor_core.tf1.monitored.api import MonitoredTrainingSession

    with tempfile.TemporaryDirectory() as logdir, tf.Graph().as_default():
        model = build()
        options = Options(handle_signals=False)
        with MonitoredTrainingSession(checkpoint_dir=logdir, config=config(in_caller), options=options) as session:
            yield cases(session, *model)


CONTENDERS = {
    OURS: ours,
    OURS_MONITORED: ours_monitored,
    BARE: bare,
    ORIGINAL: original,
    MONITORED: monitored,
    FLOOR: floor,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure_all(*map(int, sys.argv[2:5]))))
    else:
        print_table(rows("--quick" in sys.argv))
