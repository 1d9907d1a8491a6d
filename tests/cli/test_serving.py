"""What the commands that run until a signal have in common."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from supervisor_core.cli import serving
from supervisor_core.cli.logdirs import GivenLogdir


def test_a_logdir_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A dead mount does not keep a command from starting: the log says so, and that it is waited for."""
    asked, answers = threading.Event(), threading.Event()

    def find_logdir(path: str) -> GivenLogdir:
        asked.set()
        assert answers.wait(60)
        return GivenLogdir(path=path)

    monkeypatch.setattr(serving, "find_logdir", find_logdir)
    monkeypatch.setattr(serving, "_CHECK_SECS", 0.01)
    assert serving.found_or_awaited(str(tmp_path)) == GivenLogdir(path=str(tmp_path))
    assert asked.wait(60)
    assert f"{tmp_path} does not answer; waiting for it" in caplog.text
    answers.set()


def test_storage_clients_log_only_warnings() -> None:
    """Their loggers speak from warnings on, ours from information on: a line for each request is too much."""
    before = logging.getLogger().level
    try:
        logging.getLogger().setLevel(logging.NOTSET)
        serving.configure_log()
        levels = [logging.getLogger(name).getEffectiveLevel() for name in ("supervisor_core.metrics", "botocore.auth")]
        assert levels == [logging.INFO, logging.WARNING]
    finally:
        logging.getLogger().setLevel(before)
