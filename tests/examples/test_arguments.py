from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def demo(*args: str) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end."""
    command = [sys.executable, "-m", "examples.demo", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--steps", "many"), "invalid int value: 'many'"),
        (("--steps", "0"), "--steps is 0; expected a whole number from 1"),
        (("--twice",), "unrecognized arguments: --twice"),
        (("--logdir", str(ROOT)), "is not empty"),
        (("--logdir", __file__), "is a file"),
    ],
)
def test_wrong_arguments_give_one_line_and_status_2(args: tuple[str, ...], words: str) -> None:
    """What cannot be used ends the demo before anything starts, with one line that says why."""
    done = demo(*args)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("demo: ")
    assert words in line
