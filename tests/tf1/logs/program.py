"""A training in a process of its own that does what its standard input says, and says when it is done.

Usage: program.py original|hooks|ours LOGDIR

``train N`` does N steps and writes a summary of each, ``save`` saves a checkpoint as the facade's own service would,
``finish`` ends the session. Each is answered with the global step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def main(facade: str, logdir: str) -> None:
    """Train as asked."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        weight = v1.get_variable("weight", initializer=0.0)
        train_op = weight.assign(tf.cast(tf.identity(step.assign_add(1)), tf.float32)).op
        summary = v1.summary.scalar("weight", weight)
        if facade == "hooks":
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=logdir, save_checkpoint_steps=5, save_summaries_steps=1, log_step_count_steps=4
            ) as sess:
                obey(
                    lambda: sess.run(train_op),
                    v1.summary.FileWriterCache.get(logdir).flush,
                    None,
                    lambda: sess.run(step),
                )
            say("finished")
            return
        supervisor, save = supervisors()[facade](logdir)
        with supervisor.managed_session() as sess:

            def train() -> None:
                sess.run(train_op)
                supervisor.summary_computed(sess, sess.run(summary))

            obey(train, supervisor.summary_writer.flush, lambda: save(sess), lambda: sess.run(step))
    say("finished")


def supervisors() -> dict[str, Callable[[str], tuple[Any, Callable[[Any], object]]]]:
    """Return what makes each supervisor, with how its own checkpoint service saves once."""
    settings: dict[str, Any] = {"save_summaries_secs": 0, "summary_op": None}

    def original(logdir: str) -> tuple[Any, Callable[[Any], object]]:
        from tensorflow.python.training.supervisor import SVTimerCheckpointThread

        made = v1.train.Supervisor(logdir=logdir, save_model_secs=0, **settings)
        return made, lambda sess: SVTimerCheckpointThread(made, sess).run_loop()

    def ours(logdir: str) -> tuple[Any, Callable[[Any], object]]:
        import supervisor_core

        made = supervisor_core.Supervisor(logdir=logdir, save_model_secs=600, **settings)
        return made, lambda sess: made.save_checkpoint()

    return {"original": original, "ours": ours}


def obey(
    train: Callable[[], object], flush: Callable[[], object], save: Callable[[], object] | None, step: Callable[[], Any]
) -> None:
    """Do what standard input says."""
    say("ready")
    for line in sys.stdin:
        command, *count = line.split()
        if command == "finish":
            return
        if command == "save" and save is not None:
            save()
        for _ in range(int(count[0]) if count else 0):
            train()
        flush()
        say(step())


def say(what: object) -> None:
    """Answer."""
    print(what, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
