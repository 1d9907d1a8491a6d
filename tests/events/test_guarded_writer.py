"""A writer whose logdir another chief has taken over appends nothing any more, and ends without an error of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import EventsWriteError, LogdirInUseError
from supervisor_core.events import EventsWriter, writer_thread
from supervisor_core.events.events_file import guard_directory


class Check:
    """A check that passes until it is switched off; counts its calls."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None

    def __call__(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def check() -> Check:
    """A check that passes."""
    return Check()


@pytest.fixture
def guarded(
    tmp_path: Path, faulty: Any, check: Check, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., EventsWriter]]:
    """Returns a function that makes a writer, in a guarded directory, which retries only when asked."""

    guard_directory(str(tmp_path), check)
    monkeypatch.setattr(writer_thread, "RETRY_SECS", 1000.0)
    yield lambda: EventsWriter(tmp_path, filesystem=faulty)
    guard_directory(str(tmp_path), None)


def sizes(directory: Path) -> list[int]:
    """The sizes of a directory's files."""
    return sorted(path.stat().st_size for path in directory.iterdir())


def test_it_is_asked_before_each_append(guarded: Callable[..., EventsWriter], check: Check, read_logdir: Any) -> None:
    """While the check passes everything is appended, and each batch has asked."""
    writer = guarded()
    for step in (1, 2, 3):
        writer.scalar("a", 1.0, step)
        writer.flush()
    writer.close()
    assert check.asked == 3
    assert [contents.steps for contents in read_logdir(writer.logdir)] == [[1, 2, 3]]


def test_nothing_is_appended_after_a_takeover(
    guarded: Callable[..., EventsWriter], check: Check, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From the first refusal on no byte is added: what is added is counted as dropped, and no call raises."""
    writer = guarded()
    writer.scalar("a", 1.0, 1)
    writer.sync()
    before = sizes(tmp_path)
    check.error = LogdirInUseError("taken over by another")
    writer.scalar("a", 1.0, 2)
    writer.flush()
    check.error = None  # once is enough: a refusal is for good
    for step in (3, 4, 5):
        writer.scalar("a", 1.0, step)
    writer.sync()
    writer.close()
    assert sizes(tmp_path) == before
    assert (writer.written, writer.dropped, writer.pending, writer.failing) == (1, 4, 0, False)
    assert isinstance(writer.last_error, EventsWriteError)
    assert isinstance(writer.last_error.__cause__, LogdirInUseError)
    assert caplog.text.count("taken over by another") == 1


def test_no_new_file_is_begun_after_a_takeover(
    guarded: Callable[..., EventsWriter], check: Check, tmp_path: Path
) -> None:
    """When the file was deleted, or failed, the next one is not even created."""
    writer = guarded()
    writer.scalar("a", 1.0, 1)
    writer.flush()
    (path,) = tmp_path.iterdir()
    os.unlink(path)
    check.error = LogdirInUseError("taken over")
    writer.scalar("a", 1.0, 2)
    writer.flush()
    writer.close()
    assert list(tmp_path.iterdir()) == []
    assert writer.dropped == 1


def test_what_an_outage_held_back_is_not_appended_after_a_takeover(
    guarded: Callable[..., EventsWriter], check: Check, faulty: Any, tmp_path: Path
) -> None:
    """Events that waited in memory for a full disk are dropped as well."""
    writer = guarded()
    faulty.room = 0
    writer.scalar("a", 1.0, 1)
    with pytest.raises(EventsWriteError):
        writer.flush()
    before = sizes(tmp_path)
    faulty.room = None
    check.error = LogdirInUseError("taken over")
    writer.flush()
    writer.close()
    assert sizes(tmp_path) == before
    assert writer.dropped == 1


def test_a_check_that_fails_is_an_outage(
    guarded: Callable[..., EventsWriter], check: Check, read_logdir: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """While the liveness file cannot be read, events wait in memory; they are appended once it can be."""
    caplog.set_level(logging.CRITICAL)
    writer = guarded()
    check.error = OSError(5, "Input/output error")
    writer.scalar("a", 1.0, 1)
    with pytest.raises(EventsWriteError, match="Input/output error"):
        writer.flush()
    assert writer.written == 0
    check.error = None
    writer.close()
    assert [contents.steps for contents in read_logdir(writer.logdir)] == [[1]]


def test_a_writer_that_is_reopened_asks_again(
    guarded: Callable[..., EventsWriter], check: Check, tmp_path: Path
) -> None:
    """Closing and reopening is no way around the check."""
    writer = guarded()
    writer.close()
    writer.reopen()
    before = sizes(tmp_path)
    check.error = LogdirInUseError("taken over")
    writer.scalar("a", 1.0, 1)
    writer.close()
    assert sizes(tmp_path) == before


def test_each_writer_of_a_directory_is_asked(
    guarded: Callable[..., EventsWriter], check: Check, tmp_path: Path
) -> None:
    """Those made before and after, under whichever spelling of the path; another directory's is not."""
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "other").mkdir()
    check.error = LogdirInUseError("taken over")
    for directory, appended in ((tmp_path / "link", 0), (f"{tmp_path}/", 0), (tmp_path / "other", 1)):
        with EventsWriter(directory) as writer:
            writer.scalar("a", 1.0, 1)
        assert (writer.written, writer.dropped) == (appended, 1 - appended)


def test_a_forked_child_is_not_asked(guarded: Callable[..., EventsWriter], check: Check, tmp_path: Path) -> None:
    """The logdir is the parent's; a child that writes has files of its own."""
    check.error = LogdirInUseError("taken over")
    pid = os.fork()
    if pid == 0:
        with EventsWriter(tmp_path) as writer:
            writer.scalar("a", 1.0, 1)
        os._exit(writer.written)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
