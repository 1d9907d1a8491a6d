from __future__ import annotations

import os
import signal
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
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_training_behind(tmp_path: Path, signum: signal.Signals) -> None:
    """Ctrl-C or SIGTERM ends the demo with 128 and the signal's number, and takes the training with it."""
    # A shell that runs the tests in the background has SIGINT ignored, and children inherit that.
    source = (
        "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('examples.demo', run_name='__main__')"
    )
    command = [sys.executable, "-u", "-c", source, "--once", "--logdir", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        started = next(line for line in process.stdout if " imports TensorFlow" in line)
        process.send_signal(signum)
        rest = process.stdout.read()
    assert process.returncode == 128 + signum
    assert f"Interrupted; what there is so far is in {tmp_path}" in rest
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.split()[1]), 0)
