"""A real TensorBoard shows what a supervised run has written, in both loading modes."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tensorflow as tf
from forked import ForkServer

import supervisor_core

v1 = tf.compat.v1


@pytest.fixture
def restarted_run(logdir: str, build_model: Callable[..., Any]) -> str:
    """A run of two sessions with scalars of its own: steps 1 to 5, then 6 to 10."""
    for _ in range(2):
        with tf.Graph().as_default():
            model = build_model()
            supervisor = supervisor_core.Supervisor(logdir=logdir, save_summaries_secs=0)
            with supervisor.managed_session() as sess:
                for _ in range(5):
                    sess.run(model.train_op)
                    step = int(sess.run(model.global_step))
                    supervisor.summary_writer.scalar("loss", 1.0 / step, step)
    return logdir


@contextmanager
def tensorboard(fork_server: ForkServer, logdir: str, mode: str) -> Iterator[Callable[[str], Any]]:
    """A TensorBoard on a logdir; yields what asks it for JSON below ``data/``."""
    program = "from tensorboard.main import run_main; run_main()"
    options = ["--host", "127.0.0.1", "--port", "0", f"--load_fast={mode}", "--reload_interval", "1"]
    board = fork_server.start(["-c", program, "--logdir", logdir, *options], stderr=subprocess.STDOUT)
    reader = threading.Thread(target=board.stdout.read, daemon=True)
    try:
        said = []
        for line in board.stdout:
            said.append(line)
            if found := re.search(r"TensorBoard .* at (http://\S+)", line):
                break
        else:
            raise AssertionError("".join(said))
        reader.start()

        def ask(path: str) -> Any:
            with urllib.request.urlopen(f"{found[1]}data/{path}", timeout=120) as answer:
                return json.load(answer)

        yield ask
    finally:
        board.kill()
        if reader.ident is not None:
            reader.join()
        board.close()


def shown(ask: Callable[[str], Any]) -> set[int]:
    """The steps that the scalars tab has points of."""
    return {point[1] for point in ask("plugin/scalars/scalars?run=.&tag=loss")}


def test_tensorboard_shows_the_run(restarted_run: str, wait_until: Any, fork_server: ForkServer) -> None:
    """Scalars of both sessions, the graph without the supervisor's own ops, and no complaint about the telemetry."""
    for mode in ("true", "false"):  # with the data server, and in Python
        with tensorboard(fork_server, restarted_run, mode) as ask:
            wait_until(lambda: ask("plugin/scalars/tags").get("."))
            # TensorBoard in Python drops the restored step itself at START, as it does in every writer's files.
            wait_until(lambda: shown(ask) | {5} == set(range(1, 11)))
            assert set(ask("plugin/scalars/tags")["."]) == {"loss"}
            assert "." in ask("plugin/graphs/info")
