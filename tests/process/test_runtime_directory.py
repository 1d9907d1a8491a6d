"""The directory in memory: private, or refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from supervisor_core.process import runtime_directory
from supervisor_core.process.runtime_directory import private_directory


def test_the_named_directory_is_created_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode 0700, whatever the umask; a second call returns the same."""
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "runtime"))
    found = private_directory()
    assert found == tmp_path / "runtime" == private_directory()
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_the_default_is_in_memory_and_named_by_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable it is in /dev/shm, and where that refuses, in the directory for temporary files."""
    monkeypatch.delenv("SUPERVISOR_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(runtime_directory, "_MEMORY", str(tmp_path))
    name = f"tb-supervisor-{os.geteuid()}"
    assert private_directory() == tmp_path / name
    monkeypatch.setattr(runtime_directory, "_MEMORY", str(tmp_path / "missing"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert private_directory() == tmp_path / name


def test_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link could lead to files of others."""
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "link"))
    with pytest.raises(OSError, match="is a link or a file"):
        private_directory()


def test_a_directory_that_others_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others may write cannot be believed."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "shared"))
    with pytest.raises(PermissionError, match=r"can be written by others \(mode 777\)"):
        private_directory()


def test_another_users_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names both users."""
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "runtime"))
    owner = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    with pytest.raises(PermissionError, match="belongs to user"):
        private_directory()


def test_a_directory_that_cannot_be_created_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller then does without."""
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "missing" / "runtime"))
    with pytest.raises(OSError, match="missing"):
        private_directory()
