"""A training whose metrics are pushed, and how it ends: the last push says so, whatever the receiver does before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.otlp_receiver import OtlpReceiver

PROGRAM = Path(__file__).with_name("program.py")


def run(logdir: Path, receiver: OtlpReceiver, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Train for six steps."""
    environ = {**os.environ, "SUPERVISOR_OTLP_ENDPOINT": receiver.url}
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(logdir), "6", *arguments], env=environ, capture_output=True, text=True
    )


@pytest.mark.parametrize(("at_step", "status", "state"), [("none", 0, "completed"), ("3", -signal.SIGTERM, "stopped")])
def test_the_last_push_says_how_it_ended(tmp_path: Path, at_step: str, status: int, state: str) -> None:
    """At its end and after a signal, though the next push would be seconds away."""
    with OtlpReceiver() as receiver:
        done = run(tmp_path / "logs", receiver, *(["term", at_step] if at_step != "none" else []))
        assert done.returncode == status, done.stderr
        last = receiver.full[-1].values()
    (active,) = (value for text, value in last.items() if text.startswith("supervisor_active{"))
    (shown,) = (text for text in last if text.startswith("supervisor_run_state{"))
    assert active == 0 and f'state="{state}"' in shown


def test_a_killed_one_says_nothing(tmp_path: Path) -> None:
    """The last push of a process that is killed is of a training that runs: the rules know it by its age."""
    with OtlpReceiver() as receiver:
        assert run(tmp_path / "logs", receiver, "kill", "3").returncode == -signal.SIGKILL
        assert all(value != 0 for push in receiver.full for text, value in push.values().items() if "_active{" in text)
