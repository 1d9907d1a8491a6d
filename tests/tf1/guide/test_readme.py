"""What README.md shows first runs as it is written."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

README = (Path(__file__).parents[3] / "README.md").read_text("utf-8")


def test_the_first_program_runs_as_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With its one line replaced it trains, eager TensorFlow included, and its last step is saved. About ten lines."""
    (block,) = re.findall(r"^## TensorFlow 1\n\n```diff\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^(?:[+ ]|$)(.*)\n", block, re.MULTILINE)
    program = "\n".join(lines).replace("/tmp/tf1/first", str(tmp_path / "run"))
    assert len(lines) <= 11 and block.count("\n-") == 1
    monkeypatch.setattr(context, "default_execution_mode", context.EAGER_MODE)
    failures: list[BaseException] = []

    def execute() -> None:  # eager mode and the default graph are a thread's own: no other test sees the change
        try:
            assert tf.executing_eagerly()
            names: dict[str, Any] = {}
            exec(compile(program, "README.md", "exec"), names)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    thread.join()
    assert failures == []
    newest = tf.train.latest_checkpoint(str(tmp_path / "run"))
    assert newest is not None
    assert os.path.basename(newest) == "model.ckpt-1000"
