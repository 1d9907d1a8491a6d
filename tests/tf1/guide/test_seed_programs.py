"""The programs printed in seeds 001 and 003, with the import changed and nothing else but TensorFlow 1's names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import supervisor_core

v1 = tf.compat.v1


def add_operations(device: str | None = None) -> tuple[Any, Any, Any]:
    """Add a model to the default graph; return its step, its loss and its train op."""
    with tf.device(device):
        step = v1.train.get_or_create_global_step()
        weight = v1.get_variable("weight", initializer=4.0)
        loss = tf.square(weight)
        return step, loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)


def test_use_for_a_single_program(logdir: str) -> None:
    """Seed 003: the program, restarted after a crash, goes on from the most recent checkpoint."""

    def run_program(last_step: int, crashes: bool) -> int:
        with tf.Graph().as_default():
            step, _, my_train_op = add_operations()
            # Create a Supervisor that will checkpoint the model in '/tmp/mydir'.
            sv = supervisor_core.Supervisor(logdir=logdir)
            # Get a TensorFlow session managed by the supervisor.
            with sv.managed_session("") as sess:
                first = int(sess.run(step))
                # Use the session to train the graph.
                while not sv.should_stop():
                    sess.run(my_train_op)
                    if sess.run(step) == last_step:
                        sv.save_checkpoint()
                        if crashes:
                            raise MemoryError("a crash")
                        sv.request_stop()
        return first

    with pytest.raises(MemoryError, match="a crash"):
        run_program(20, crashes=True)
    assert run_program(30, crashes=False) == 20


def test_use_for_multiple_replicas(logdir: str) -> None:
    """Seed 003: the same program as chief and as worker, which waits for the chief and trains the chief's model."""
    server = v1.train.Server.create_local_server()
    ends: dict[int, int] = {}
    trained = threading.Event()

    def run_program(task_index: int) -> None:
        is_chief = task_index == 0
        with tf.Graph().as_default():
            step, _, my_train_op = add_operations("/cpu:0")
            # Create a Supervisor that uses log directory on a shared file system.
            # Indicate if you are the 'chief'
            sv = supervisor_core.Supervisor(logdir=logdir, is_chief=is_chief, recovery_wait_secs=0.05)
            # Get a Session in a TensorFlow server on the cluster.
            with sv.managed_session(server.target) as sess:
                if is_chief:
                    assert trained.wait(60)
                else:
                    while not sv.should_stop():
                        sess.run(my_train_op)
                        if sess.run(step) >= 10:
                            sv.request_stop()
                ends[task_index] = int(sess.run(step))
        trained.set()

    worker = threading.Thread(target=run_program, args=(1,))
    worker.start()
    run_program(0)
    worker.join()
    assert ends == {0: 10, 1: 10}
    assert v1.train.latest_checkpoint(logdir) == f"{logdir}/model.ckpt-10"


@pytest.mark.parametrize("master", ["", "local", "grpc"])
def test_what_master_string_to_use(logdir: str, master: str) -> None:
    """Seed 003: all three train, 'local' through a server of its own, though TensorFlow itself knows it no more."""
    step, _, my_train_op = add_operations()
    target = v1.train.Server.create_local_server().target if master == "grpc" else master
    with supervisor_core.Supervisor(logdir=logdir).managed_session(target) as sess:
        sess.run(my_train_op)
        assert sess.run(step) == 1
        assert bool(sess.sess_str) == (master != "")


def test_seed_001(
    logdir: str, capsys: pytest.CaptureFixture[str], read_summaries: Callable[[str], list[tuple[int, float]]]
) -> None:
    """Seed 001: a program that saves and summarizes by hand, with the supervisor's own saver and writer."""
    a = v1.Variable(1)
    b = v1.Variable(2)
    c = tf.add(a, b)
    update = v1.assign(a, c)
    v1.summary.scalar("a", a)
    init_op = v1.global_variables_initializer()
    merged_summary_op = v1.summary.merge_all()
    sv = supervisor_core.Supervisor(logdir=logdir, init_op=init_op)
    saver = sv.saver
    with sv.managed_session() as sess:
        for i in range(1000):
            update_ = sess.run(update)
            print(update_)
            if i % 10 == 0:
                merged_summary = sess.run(merged_summary_op)
                sv.summary_computed(sess, merged_summary, global_step=i)
            if i % 100 == 0:
                saver.save(sess, logdir + "/by_hand", global_step=i)
    assert capsys.readouterr().out.split()[-1] == "2001"
    by_hand = [item for item in read_summaries("a") if item[0] > 0]
    assert by_hand == [(i, float(3 + 2 * i)) for i in range(10, 1000, 10)]
    assert tf.train.load_checkpoint(logdir + "/by_hand-900").get_tensor("Variable") == 1803
