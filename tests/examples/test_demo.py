from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
needs_training = pytest.mark.skipif(
    find_spec("tensorflow") is None or find_spec("sklearn") is None, reason="trains: needs tensorflow and scikit-learn"
)


@needs_training
@pytest.mark.timeout(300)
def test_the_demo_sees_every_promise_kept(tmp_path: Path) -> None:
    """Killed, resumed, stopped, finished: status 0, each promise seen, the figures and files at the end."""
    logdir = tmp_path / "logs"
    command = [sys.executable, "-m", "examples.demo", "--once", "--steps", "1500", "--logdir", str(logdir)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "All of it was seen." in lines
    assert not any("│ NO" in line for line in lines)
    for figure, value in (("sessions", "3"), ("restarts", "2"), ("steps done again after SIGTERM", "0")):
        assert [line.split("│")[2].strip() for line in lines if f"│ {figure} " in line] == [value]
    for words in ("killed with SIGKILL at step", "sent SIGTERM at step", "test accuracy", "tensorboard --logdir"):
        assert words in done.stdout
    assert done.stderr == ""
    assert len(list((logdir / "digits").glob("events.out.tfevents.*"))) == 3
    assert sorted(path.name for path in logdir.glob("session-*.txt")) == [f"session-{n}.txt" for n in (1, 2, 3)]


@needs_training
def test_an_interrupted_demo_leaves_no_training_behind(tmp_path: Path) -> None:
    """Ctrl-C ends the demo with status 130, says where the files are, and takes the training with it."""
    command = [sys.executable, "-u", "-m", "examples.demo", "--once", "--logdir", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        (line,) = [line for line in iter(process.stdout.readline, "") if " imports TensorFlow" in line][:1]
        process.send_signal(2)
        rest = process.stdout.read()
    assert process.returncode == 130
    assert f"Interrupted; what there is so far is in {tmp_path}" in rest
    with pytest.raises(ProcessLookupError):
        os.kill(int(line.split()[1]), 0)
