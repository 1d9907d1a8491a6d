"""What others wrote reaches logs and terminals as text: the exporter's, the trainer's, TensorBoard's."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

import pytest
from click.testing import CliRunner

import supervisor_core
import tb_plugin
from supervisor_core.base.errors import EventsWriteError, NoUsableCheckpointError
from supervisor_core.cli import main, serving
from tests.cases import each


def test_the_log_shows_controls_as_escapes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A run's name neither clears the screen nor forges a line."""
    root = logging.Logger("root")
    monkeypatch.setattr(logging, "root", root)
    package = logging.getLogger("supervisor_core")
    monkeypatch.setattr(package, "level", package.level)  # put back at the end
    serving.configure_log()
    logging.root.handle(
        logging.LogRecord("x", logging.WARNING, "", 0, "Run %s", ("\x1b[2J\n2026-01-01 INFO all is well",), None)
    )
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert "\\x1b[2J\\n2026" in written
    assert "\x1b" not in written


@pytest.fixture
def log() -> Iterator[Callable[[], str]]:
    """What a program's own handler, with any format, writes of the logger that everything here uses."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("supervisor_core")
    logger.addHandler(handler)
    yield stream.getvalue
    logger.removeHandler(handler)


HOSTILE = "\x1b[2J\x9b31m\u202e\r\n2026-01-01 INFO all is well"


def test_a_trainers_log_shows_controls_as_escapes(log: Callable[[], str]) -> None:
    """Names and paths stay on one line; an error's lines, and a traceback's, are indented; numbers are numbers."""
    logger = logging.getLogger("supervisor_core")
    logger.warning("Passed over %s (%r): %s", HOSTILE, HOSTILE, OSError(HOSTILE))
    logger.warning("%(name)s %(count)05.1f %(path)s", {"name": HOSTILE, "count": 1.25, "path": PurePath(HOSTILE)})
    logger.warning("%d of %s", 3, None)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("A fault")
    written = log()
    assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(written)
    assert [line for line in written.splitlines() if line.startswith("2026-01-01 INFO")] == []
    assert "3 of None\n" in written
    assert " 001.2 " in written
    assert written.count("\\x1b[2J") == 6


def test_everything_logs_to_the_logger_that_shows_text() -> None:
    """No module of the trainer, the exporter or the tab has a logger of its own, which others would not follow."""
    names = {
        name
        for package in (supervisor_core, tb_plugin)
        for path in Path(package.__path__[0]).rglob("*.py")
        for name in re.findall(r"getLogger\((.*?)\)", path.read_text())
    }
    of_others = {'"tensorflow"', '"apprise"', "name"}  # they are read, or kept quiet
    assert names == {'"supervisor_core"', "LOGGER", "_LOGGER", "", *of_others}


def test_an_error_shows_controls_as_escapes() -> None:
    """Uncaught, it reaches the terminal as text; caught and raised in another, it stays as it is."""
    shown = str(EventsWriteError(f"{HOSTILE} cannot be written", lost=1))
    assert shown.splitlines()[1] == "    2026-01-01 INFO all is well cannot be written"
    assert "\x1b" not in shown
    assert str(NoUsableCheckpointError(shown)) == shown


@each("command", ["inspect", "verify"])
def test_an_error_of_a_command_is_text(tmp_path: Path, command: str) -> None:
    """What a command refuses is a name that somebody may have made."""
    done = CliRunner().invoke(main, [command, str(tmp_path / HOSTILE.replace("/", ""))])
    assert done.exit_code != 0
    assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(done.output)
