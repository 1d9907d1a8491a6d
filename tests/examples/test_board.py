from __future__ import annotations

import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from examples.demo.board import serve_board


def test_tensorboard_answers_until_it_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says where it is, on this machine only; Ctrl-C ends it with status 0 and leaves nothing behind."""
    # Without TensorFlow, whose import is most of its start.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['tensorflow'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    seen = []

    def look_and_interrupt(url: str) -> None:
        with urllib.request.urlopen(url + "data/logdir", timeout=60.0) as answer:
            seen.append((url, answer.read().decode()))
        raise KeyboardInterrupt

    assert serve_board(tmp_path, look_and_interrupt) == 0
    ((url, answer),) = seen
    assert url.startswith("http://127.0.0.1:")
    assert str(tmp_path) in answer
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=60.0)
