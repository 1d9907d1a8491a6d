"""A training in a process of its own, under `MonitoredTrainingSession`. It says on standard output what it does.

``LOGDIR.steps`` holds the number of finished steps, as 8 bytes.

Usage: program.py LOGDIR
"""

from __future__ import annotations

import mmap
import sys
import threading
from pathlib import Path

import tensorflow as tf

import supervisor_core


def main(logdir: str) -> None:
    """Train; the weight is the step at every moment between two runs."""
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        weight = tf.compat.v1.get_variable("weight", initializer=0.0)
        train_op = weight.assign(tf.cast(tf.identity(step.assign_add(1)), tf.float32)).op
        options = supervisor_core.Options(stop_timeout_secs=60)
        with supervisor_core.MonitoredTrainingSession(
            checkpoint_dir=logdir, save_checkpoint_secs=0.05, options=options
        ) as sess:
            print("training", flush=True)
            pause = threading.Event()
            done = counter(f"{logdir}.steps")
            while not sess.should_stop():
                sess.run(train_op)
                done[0] += 1
                pause.wait(0.005)  # leaves the machine to the others
            print("last step", sess.run(step), flush=True)
    print("the end", flush=True)


def counter(path: str) -> memoryview[int]:
    """Return a number in memory that outlives the process."""
    Path(path).write_bytes(bytes(8))
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 8)).cast("q")


if __name__ == "__main__":
    main(sys.argv[1])
