from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from examples.demo.trainer import Trainer


class Start(Protocol):
    def __call__(self, source: str) -> Trainer: ...


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process that runs some Python; it is gone after the test."""
    with ExitStack() as stack:
        yield lambda source: stack.enter_context(
            Trainer([sys.executable, "-c", source], tmp_path / "out.txt", tmp_path)
        )


def test_facts_are_taken_from_stdout(start: Start) -> None:
    """JSON objects printed to stdout are facts, the latest of each name; anything else is only output."""
    trainer = start("print('{\"a\": 1}'); print('hello'); print('[2]'); print('{\"a\": 3, \"b\": null}')")
    assert trainer.wait(60.0) == 0
    assert trainer.said == {"a": 3, "b": None}
    assert trainer.last_words().splitlines()[1] == "hello"


def test_the_metrics_address_is_taken_from_the_log(start: Start) -> None:
    """The port that the trainer picked is known from what it logs."""
    trainer = start("import sys; sys.stderr.write('Metrics are served at http://127.0.0.1:4711/metrics\\n')")
    assert trainer.metrics_url is None or trainer.metrics_url.endswith("/metrics")
    assert trainer.wait(60.0) == 0
    assert trainer.metrics_url == "http://127.0.0.1:4711/metrics"
    assert "4711" in trainer.last_words()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """After the block the process and what it started are gone, whatever they would have liked."""
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    source = (
        "import os, signal, threading\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "held = open('alive', 'w')\n"
        "os.fork() and print('{\"forked\": true}', flush=True)\n"
        "threading.Event().wait()"
    )
    with Trainer([sys.executable, "-c", source], tmp_path / "out.txt", tmp_path) as trainer:
        while not trainer.said:
            assert trainer.wait(0.05) is None
    assert trainer.wait(0.0) == -signal.SIGKILL
    os.set_blocking(alive, True)
    assert os.read(alive, 1) == b""  # the end comes when the last process that holds it is gone
    os.close(alive)
