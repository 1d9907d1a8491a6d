"""What others wrote reaches the exporter's log as text on one line."""

from __future__ import annotations

import logging

import pytest

from supervisor_core.cli import exporter


def test_the_log_shows_controls_as_escapes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A run's name neither clears the screen nor forges a line."""
    root = logging.Logger("root")
    monkeypatch.setattr(logging, "root", root)
    package = logging.getLogger("supervisor_core")
    monkeypatch.setattr(package, "level", package.level)  # put back at the end
    exporter.configure_log()
    logging.root.handle(
        logging.LogRecord("x", logging.WARNING, "", 0, "Run %s", ("\x1b[2J\n2026-01-01 INFO all is well",), None)
    )
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert "\\x1b[2J\\n2026" in written
    assert "\x1b" not in written
