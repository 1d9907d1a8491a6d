"""A cluster learns handwritten digits: a parameter server, a chief and some workers, each a process of its own.

    python -m examples.cluster --logdir /tmp/cluster --steps 20000

Run like this it starts them all on this machine, each with a ``TF_CONFIG`` of its own, as Kubernetes or Slurm would,
and starts those again that die. It prints their process numbers: kill whichever you like, in any way. Where
``TF_CONFIG`` is set, it is the one process that this describes; that half, `take_part`, is what a program of yours
looks like.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import subprocess
import sys
from contextlib import ExitStack

TF_CONFIG = "TF_CONFIG"


def main() -> None:
    args = parse_args()
    if os.environ.get(TF_CONFIG):
        take_part(args.logdir, args.steps)
    else:
        run_here(addresses(args.workers))


def take_part(logdir: str, steps: int) -> None:
    """Be one process of the cluster: chief, worker or parameter server."""
    import tensorflow.compat.v1 as tf  # not in the process that only starts the others

    from examples.digits import batch_of, build_model, load_data
    from supervisor_core import ClusterTask, Options, Supervisor

    options = Options(finished_wait_secs=5)  # this run is not started again once it has finished
    task = ClusterTask.from_environment()
    logging.basicConfig(level=logging.INFO, format=f"{task.name}: %(message)s")
    task.start_server()
    if task.is_parameter_server:
        task.serve(logdir, options=options)  # returns when the run has finished
        return
    train, test = load_data()
    tf.disable_eager_execution()
    with tf.Graph().as_default(), task.device():
        model = build_model()
        sv = Supervisor(
            logdir=logdir,
            is_chief=task.is_chief,
            summary_op=None,
            save_model_secs=5,
            recovery_wait_secs=1,
            options=options,
        )
        with sv.managed_session(task.target, config=task.session_config()) as sess:
            step, seed = 0, sum(task.name.encode())  # each sees the images in an order of its own
            while step < steps and not sv.should_stop():
                chosen = batch_of(step, 16, len(train.images), seed)
                feed = {model.images: train.images[chosen], model.labels: train.labels[chosen]}
                _, step, summary = sess.run([model.train_op, sv.global_step, model.summary_op], feed)
                if task.is_chief and step % 20 == 0:
                    sv.summary_computed(sess, summary, step)
            if task.is_chief and step >= steps:
                accuracy = sess.run(model.accuracy, {model.images: test.images, model.labels: test.labels})
                print(f"test accuracy {accuracy:.3f} at step {step}", flush=True)


def addresses(workers: int) -> dict[str, list[str]]:
    """Return a cluster on this machine: job -> addresses that are free."""
    jobs = {"ps": 1, "chief": 1, "worker": workers}
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(sum(jobs.values()))]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in sockets]
    return {job: [f"127.0.0.1:{ports.pop()}" for _ in range(count)] for job, count in jobs.items()}


def run_here(cluster: dict[str, list[str]]) -> None:
    """Start every process of a cluster, and start those again that die, until all have ended well."""
    tasks = [(job, index) for job, addresses in cluster.items() for index in range(len(addresses))]
    running: dict[int, tuple[str, int, subprocess.Popen[bytes]]] = {}

    def start(job: str, index: int) -> None:
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        process = subprocess.Popen([sys.executable, "-m", "examples.cluster", *sys.argv[1:]], env=environment(config))
        running[process.pid] = (job, index, process)
        print(f"{job}:{index} is process {process.pid}", flush=True)

    try:
        for job, index in tasks:
            start(job, index)
        while running:
            pid, status = os.wait()
            job, index, process = running.pop(pid)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                print(f"{job}:{index} ended with {process.returncode}: it is started again", flush=True)
                start(job, index)
            else:
                print(f"{job}:{index} is through", flush=True)
    except KeyboardInterrupt:
        print("interrupted: all are asked to stop", flush=True)
    finally:
        for _, _, process in running.values():
            process.terminate()
        for _, _, process in running.values():
            process.wait()


def environment(config: str) -> dict[str, str]:
    return {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **os.environ, TF_CONFIG: config}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.cluster", description="Learn to read digits, in a cluster."
    )
    parser.add_argument("--logdir", required=True, help="where checkpoints and events go, shared by all processes")
    parser.add_argument("--steps", type=int, default=4000, help="train up to this global step (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="workers besides the chief (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
