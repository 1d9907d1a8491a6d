"""A training under the real Supervisor that does as it is asked, one line on its standard input at a time: ``hold``
hangs inside the next step, ``go`` lets it go on; ``nan`` makes its loss NaN, ``finite`` finite. SIGTERM ends it. Run as
a program.
"""

from __future__ import annotations

import math
import sys
import threading

import numpy as np
import tensorflow as tf

from supervisor_core import Supervisor
from supervisor_core.base.options import Options


def main(logdir: str, address: str, budget_secs: str) -> None:
    """Train until SIGTERM."""
    free = threading.Event()
    free.set()
    losses = {"nan": math.nan, "finite": 0.5}
    loss = [0.5]

    def obey() -> None:
        for line in sys.stdin:
            command = line.strip()
            (free.clear if command == "hold" else free.set)()
            loss[0] = losses.get(command, loss[0])

    def step() -> int:
        free.wait()
        threading.Event().wait(0.02)
        return 1

    threading.Thread(target=obey, daemon=True).start()
    with tf.Graph().as_default():
        global_step = tf.compat.v1.train.create_global_step()
        train_op = tf.compat.v1.assign_add(global_step, tf.cast(tf.compat.v1.py_func(step, [], tf.int64), tf.int64))
        last_loss = tf.compat.v1.get_variable("last_loss", [], trainable=False)
        present_loss = tf.compat.v1.py_func(lambda: np.float32(loss[0]), [], tf.float32)
        train_op = tf.group(train_op, last_loss.assign(tf.ensure_shape(present_loss, [])))
        options = Options(
            watched_loss=last_loss,
            run_name="digits",
            metrics_address=address,
            heartbeat_secs=1.0,
            hang_timeout_secs={"training": float(budget_secs)},
        )
        supervisor = Supervisor(logdir=logdir, save_model_secs=1, save_summaries_secs=0, options=options)
        with supervisor.managed_session() as session:
            print("training", flush=True)
            while not supervisor.should_stop():
                session.run(train_op)


if __name__ == "__main__":
    main(*sys.argv[1:])
