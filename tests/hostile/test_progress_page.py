"""A progress page that a hostile logdir names, or that another user has made up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor_core.process.identity import boot_id
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, LATEST, STEPS, page_of_session, read_page

pytestmark = pytest.mark.skipif(boot_id() is None, reason="without a boot id a page does not count")


def test_a_liveness_file_names_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an ordinary file of the session's own name is opened: opening a device can have effects."""
    page = ProgressPage.create(tmp_path, session_id="s1")
    assert page_of_session(str(page.path), "s1") is not None
    os.mkfifo(tmp_path / "pipe.page")
    (tmp_path / "link.page").symlink_to(tmp_path / "s1.page")
    (tmp_path / "null.page").symlink_to("/dev/null")
    (tmp_path / "directory.page").mkdir()
    page.close()
    opened: list[str] = []
    monkeypatch.setattr(os, "open", lambda path, *arguments: opened.append(str(path)))
    for session in ("pipe", "link", "null", "directory", "missing"):
        assert page_of_session(str(tmp_path / f"{session}.page"), session) is None
    for path in ("/dev/watchdog", "s1.page", "../s1.page", str(tmp_path / "other.page"), "", "a\0b"):
        assert page_of_session(path, "s1") is None
    assert opened == []


def test_a_page_that_was_made_up_is_bounded(tmp_path: Path) -> None:
    """No number is larger than one can be."""
    page = ProgressPage.create(tmp_path, session_id="s1")
    assert page.path is not None
    page.step_is(10**15, 10**15)
    page.counts[STEPS] = 10**15
    found = read_page(page.path)
    assert found is not None and found.step is None
    page.counts[STEPS] = 10**15 + 1
    assert read_page(page.path) is None
    page.counts[STEPS], page.times[LAST_PROGRESS] = 1, 2 * LATEST
    assert read_page(page.path) is None
    page.times[LAST_PROGRESS] = 0.0
    page.update(phase="training", hang_timeout_secs=2 * LATEST, act_after_secs=2 * LATEST)
    found = read_page(page.path)
    assert found is not None and found.hang_timeout_secs is None
    page.close()
