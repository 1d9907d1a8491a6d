"""What a session says of where it runs."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import SaveFailedError
from supervisor_core.base.options import Options
from supervisor_core.engine.environment import refuse_unwritable, run_name


@pytest.fixture(autouse=True)
def no_root(monkeypatch) -> None:
    """Nothing says where all runs are."""
    monkeypatch.delenv("SUPERVISOR_LOGDIR", raising=False)


@pytest.mark.parametrize(
    ("given", "logdir", "name"),
    [
        ("mine", "/logs/a", "mine"),
        (None, "/logs/a", "logs/a"),
        (None, "/data/exp1/train/", "exp1/train"),
        (None, "/data/exp2/train", "exp2/train"),
        (None, "gs://bucket/logs/a", "logs/a"),
        (None, "gs://bucket", "bucket"),
        (None, "/a", "a"),
        (None, None, "."),
        (None, "/", "."),
    ],
)
def test_a_run_is_named_after_its_place(given: str | None, logdir: str | None, name: str) -> None:
    """Unless the program names it; ``train`` alone would be the name of half of all runs."""
    assert run_name(given, logdir) == name


@pytest.mark.parametrize(
    ("root", "logdir", "name"),
    [
        ("/data", "/data/digits", "digits"),
        ("/data/", "/data/team/exp1/train", "team/exp1/train"),
        ("gs://bucket/logs", "gs://bucket/logs/a/b/c", "a/b/c"),
        ("/data", "/database/digits", "database/digits"),
        ("/data/digits", "/data/digits", "data/digits"),
    ],
)
def test_below_the_logdir_it_is_named_as_the_exporter_names_it(monkeypatch, root: str, logdir: str, name: str) -> None:
    """The environment says what the exporter's logdir is."""
    monkeypatch.setenv("SUPERVISOR_LOGDIR", root)
    assert run_name(None, logdir) == name


def test_a_relative_logdir_is_named_after_what_it_is(tmp_path, monkeypatch) -> None:
    """``.`` is the directory one stands in."""
    (tmp_path / "exp1" / "run-7").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "exp1" / "run-7")
    assert run_name(None, ".") == "exp1/run-7"


def refused(directory: Path | str, *, is_own: bool = True, **options: Any) -> str:
    """The error, empty if there is none."""
    try:
        refuse_unwritable(str(directory), Options(**options), is_own=is_own)
    except SaveFailedError as error:
        return str(error)
    return ""


def fails(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Have no file made."""

    def refuse(path: str, *rest: Any) -> int:
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr("supervisor_core.storage.directory.os.open", refuse)


def test_a_directory_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    """One that is missing is not made; an object store is not asked."""
    assert refused(tmp_path) == refused(tmp_path / "a" / "b") == refused("gs://bucket/a") == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["there", "missing/below"])
def test_a_directory_that_cannot_be_written_is_an_error(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the directory, its owner and mode, this process's user, and what to do; an option makes it a warning."""
    (tmp_path / "there").mkdir(mode=0o750)
    denied = tmp_path / name if name == "there" else tmp_path
    fails(monkeypatch, errno.EACCES)
    user = f"{pwd.getpwuid(os.geteuid()).pw_name} (uid {os.geteuid()})"
    assert refused(tmp_path / name) == (
        f"{tmp_path / name} cannot be written: Permission denied. {denied} belongs to {user} and has the mode "
        f"{denied.stat().st_mode & 0o777:o}; this process runs as {user}. Let this user write there, run as its owner, "
        'or use another directory. Options(unwritable_checkpoints="continue") trains without.'
    )
    assert refused(tmp_path / name, unwritable_checkpoints="continue") == ""
    assert "Let this user write there" in caplog.text and "Training goes on without checkpoints." in caplog.text


def test_a_read_only_file_system_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever the directory belongs to."""
    fails(monkeypatch, errno.EROFS)
    assert "Its file system is mounted read-only: mount it for writing" in refused(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE])
def test_what_may_pass_is_no_error(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A training that resumes on a full disk may have room at its first save."""
    fails(monkeypatch, code)
    assert refused(tmp_path) == ""
    assert f"{tmp_path} cannot be written: {os.strerror(code)}. Saves are tried again" in caplog.text


@pytest.mark.parametrize("kind", ["file", "link", "below a file"])
def test_what_is_no_directory_is_an_error(tmp_path: Path, kind: str) -> None:
    """A link in the place of a directory of ours would lead the checkpoints elsewhere; the program's own may be one."""
    path = tmp_path / "checkpoints"
    if kind == "link":
        path.symlink_to(tmp_path)
        assert refused(path, is_own=False) == ""
    else:
        path.touch()
    text = refused(path / "a" if kind == "below a file" else path)
    assert "A directory was expected there" in text or "a directory was expected" in text
