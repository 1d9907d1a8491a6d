"""The directory in memory: private, and nobody else can keep a process from having one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from supervisor_core.process import runtime_directory
from supervisor_core.process.runtime_directory import private_directories, private_directory

NAME = f"tb-supervisor-{os.geteuid()}"


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /dev/shm; no variable is set, and the directory for temporary files is another one."""
    found = tmp_path / "shm"
    found.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.delenv("SUPERVISOR_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(runtime_directory, "_MEMORY", str(found))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return found


def test_the_named_directory_is_created_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode 0700, whatever the umask; a second call returns the same."""
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "runtime"))
    found = private_directory()
    assert found == tmp_path / "runtime" == private_directory()
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_the_systems_own_directory_comes_first(tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is this user's alone. Else, as where it was handed down by ``sudo``, it is left alone."""
    xdg = tmp_path / "xdg"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(xdg))
    assert private_directory() == memory / NAME
    xdg.mkdir(mode=0o700)
    assert private_directory() == xdg / "tb-supervisor"
    assert private_directories() == [xdg / "tb-supervisor", memory / NAME]  # a process without the variable is found
    xdg.chmod(0o755)
    assert private_directory() == memory / NAME
    xdg.chmod(0o700)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert private_directory().parent == memory and private_directories() == []  # to another user


def test_the_default_is_in_memory_and_named_by_user(
    tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /dev/shm, and where that is missing, in the directory for temporary files."""
    assert private_directory() == memory / NAME
    monkeypatch.setattr(runtime_directory, "_MEMORY", str(tmp_path / "missing"))
    assert private_directory() == tmp_path / "tmp" / NAME


@pytest.mark.parametrize("kind", ["link", "file", "shared", "missing"])
def test_a_named_directory_that_cannot_be_believed_is_not_used(
    tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A link could lead to files of others, and what others may write cannot be believed. The reason is handed on."""
    named = tmp_path / "named"
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(named))
    if kind == "link":
        named.symlink_to(memory)
    elif kind == "file":
        named.write_text("")
    elif kind == "shared":
        named.mkdir()
        named.chmod(0o777)
    else:
        monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(named / "runtime"))
    refused: list[OSError] = []
    assert private_directory(refused.append) == memory / NAME
    [error] = refused
    said = {"shared": "can be written by others (mode 777)", "missing": "No such file"}
    assert said.get(kind, "is a link or a file, not a directory") in str(error) and str(named) in str(error)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("kind", ["directory", "link", "file"])
def test_who_takes_the_name_first_keeps_nobody_from_having_a_directory(tmp_path: Path, memory: Path, kind: str) -> None:
    """The next one has a random name, is found by all processes of this user, and used by the next ones, too."""
    taken = memory / NAME
    if kind == "directory":
        taken.mkdir(mode=0o700)
    elif kind == "link":
        taken.symlink_to(tmp_path)
    else:
        taken.write_text("")
    os.chown(taken, 65534, 65534, follow_symlinks=False)
    hostile = memory / f"{NAME}-aaaaaaaa"
    hostile.mkdir(mode=0o700)
    os.chown(hostile, 65534, 65534)
    found = private_directory()
    assert found.parent == memory and found.name.startswith(f"{NAME}-") and found != hostile
    assert (found.stat().st_uid, stat.S_IMODE(found.stat().st_mode)) == (0, 0o700)
    assert private_directory() == found and private_directories() == [found]


def test_without_any_there_is_an_error_with_every_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller then does without."""
    monkeypatch.setenv("SUPERVISOR_RUNTIME_DIR", str(tmp_path / "missing" / "runtime"))
    monkeypatch.setattr(runtime_directory, "_MEMORY", str(tmp_path / "none"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "neither"))
    with pytest.raises(OSError, match=r"missing.*none.*neither"):
        private_directory()
