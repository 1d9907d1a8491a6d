"""A training under the real Supervisor that does as it is told, one line on its standard input at a time: ``hold``
hangs inside the next step, ``go`` lets it go on. SIGTERM ends it. Run as a program.
"""

from __future__ import annotations

import sys
import threading

import tensorflow as tf

from supervisor_core import Supervisor
from supervisor_core.options import Options


def main(logdir: str, address: str, budget_secs: str) -> None:
    """Train until SIGTERM."""
    free = threading.Event()
    free.set()

    def obey() -> None:
        for line in sys.stdin:
            (free.clear if line.strip() == "hold" else free.set)()

    def step() -> int:
        free.wait()
        threading.Event().wait(0.02)
        return 1

    threading.Thread(target=obey, daemon=True).start()
    with tf.Graph().as_default():
        global_step = tf.compat.v1.train.create_global_step()
        train_op = tf.compat.v1.assign_add(global_step, tf.cast(tf.compat.v1.py_func(step, [], tf.int64), tf.int64))
        options = Options(
            run_name="digits",
            metrics_address=address,
            heartbeat_secs=1.0,
            stall_timeout_secs={"training": float(budget_secs)},
        )
        supervisor = Supervisor(logdir=logdir, save_model_secs=1, save_summaries_secs=0, options=options)
        with supervisor.managed_session() as session:
            print("training", flush=True)
            while not supervisor.should_stop():
                session.run(train_op)


if __name__ == "__main__":
    main(*sys.argv[1:])
