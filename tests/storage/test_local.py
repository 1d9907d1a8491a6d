from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.base.errors import EventsError
from supervisor_core.storage.local import LOCAL, LocalFilesystem, append_filesystem_for, join, source_of
from tests.cases import each


def test_a_file_is_created_exclusively(tmp_path: Path) -> None:
    """What exists is never overwritten, and what was created holds its first bytes at once."""
    path = tmp_path / "events"
    LOCAL.create(str(path), b"first").close()
    assert path.read_bytes() == b"first"
    with pytest.raises(FileExistsError):
        LOCAL.create(str(path), b"second")
    assert path.read_bytes() == b"first"


def test_chunks_are_appended_in_order(tmp_path: Path) -> None:
    """Appending adds to the end, whatever another process appends meanwhile."""
    path = tmp_path / "events"
    file = LOCAL.create(str(path), b"a")
    file.append([b"b", b"c"])
    with path.open("ab") as other:
        other.write(b"d")
    file.append([b"e"])
    assert (path.read_bytes(), file.size()) == (b"abcde", 5)
    file.truncate(2)
    assert path.read_bytes() == b"ab"
    file.close()


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call that takes only part of a chunk is followed by others for the rest."""
    file = LOCAL.create(str(tmp_path / "events"), b"")
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[:3])))
    file.append([b"0123456789", b"abc"])
    assert (tmp_path / "events").read_bytes() == b"0123456789abc"


def test_a_deleted_file_is_noticed(tmp_path: Path) -> None:
    """Appending to a file without a name would be in vain, so the file says that it is gone."""
    file = LOCAL.create(str(tmp_path / "events"), b"a")
    assert not file.is_gone()
    (tmp_path / "events").unlink()
    assert file.is_gone()


def test_the_directory_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sync makes the file's name durable too, later ones its content."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    file = LOCAL.create(str(tmp_path / "events"), b"a")
    file.sync()
    file.sync()
    assert synced == [str(tmp_path / "events"), str(tmp_path), str(tmp_path / "events")]


def test_a_file_system_that_cannot_sync_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where fsync does not exist, syncing is flushing, said once; any other failure is one."""
    error = OSError(errno.EINVAL, "Invalid argument")

    def fsync(descriptor: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fsync)
    file = LOCAL.create(str(tmp_path / "events"), b"a")
    with caplog.at_level(logging.INFO):
        file.sync()
        file.sync()
    assert len(caplog.records) == 1
    error.errno = errno.EIO
    with pytest.raises(OSError, match="Invalid argument"):
        file.sync()


def test_no_empty_file_is_left_where_nothing_fits(tmp_path: Path) -> None:
    """A file whose first record cannot be written is taken back, so that retries leave no litter."""
    signal_was = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        with pytest.raises(OSError):
            LOCAL.create(str(tmp_path / "events"), b"a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, signal_was)
    assert os.listdir(tmp_path) == []


def test_a_relative_path_can_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the working directory has a directory too."""
    monkeypatch.chdir(tmp_path)
    file = LocalFilesystem().create("events", b"a")
    file.sync()
    file.close()


def test_paths_are_local_unless_they_say_otherwise() -> None:
    """Only ``://`` makes a path remote, and joining follows suit."""
    assert append_filesystem_for("/run/a:b") is LOCAL
    assert join("/run", "x") == "/run/x"
    assert join("gs://bucket/run/", "x") == "gs://bucket/run/x"


def test_local_paths_need_no_tensorboard(tmp_path: Path) -> None:
    """Writing local events loads neither tensorboard nor protobuf nor numpy."""
    code = (
        "import sys; from supervisor_core.events import FileWriter\n"
        f"writer = FileWriter({str(tmp_path)!r}); writer.scalar('a', 1.0, 1); writer.close()\n"
        "print([n for n in ('tensorboard', 'tensorflow', 'google.protobuf', 'numpy', 'fsspec') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@each("path", ["nosuchscheme://bucket/run", "nosuchscheme::memory://run"])
def test_a_scheme_without_a_file_system_says_what_to_install(path: str) -> None:
    """The error names the path, the scheme and the remedies."""
    with pytest.raises(EventsError, match=r"nosuchscheme://.*Install fsspec.*local directory"):
        append_filesystem_for(path)


def test_a_known_scheme_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec knows abfs:// and not how to reach it: the error passes on which package is missing."""
    registry: Any = pytest.importorskip("fsspec.registry")

    def get_filesystem_class(protocol: str) -> None:
        raise ImportError("Please install adlfs to access Azure")

    monkeypatch.setattr(registry, "get_filesystem_class", get_filesystem_class)
    with pytest.raises(EventsError, match="adlfs"):
        append_filesystem_for("abfs://bucket/run")


def nest(path: Path, levels: int) -> None:
    """Make directories, each in the one before; deeper than a path can be long."""
    place = os.open(path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("a", dir_fd=place)
        inner = os.open("a", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=place))
    os.close(place)


@each("levels", [1100, 2100])
def test_a_tree_deeper_than_the_stack_is_walked_and_deleted(tmp_path: Path, levels: int) -> None:
    """What is beyond the longest path is an error of the walk. Links are not followed by the deletion."""
    top = tmp_path / "top"
    top.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "work").write_text("of a year")
    (top / "link").symlink_to(tmp_path / "elsewhere")
    nest(top, levels)
    errors: list[OSError] = []
    found = list(LOCAL.walk(str(top), errors.append))
    assert len(found) > 1100 or found[-1][1] == ["file"]
    assert [error.errno for error in errors] == ([] if levels == 1100 else [errno.ENAMETOOLONG])
    LOCAL.remove_tree(str(top))
    assert sorted(os.listdir(tmp_path)) == ["elsewhere"]
    assert (tmp_path / "elsewhere" / "work").exists()
    with pytest.raises(FileNotFoundError):
        LOCAL.remove_tree(str(top))


def test_entries_say_what_they_are(tmp_path: Path) -> None:
    """Directories, files, links to either, links to nothing or to themselves."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "to-directory").symlink_to("directory")
    (tmp_path / "to-nothing").symlink_to("nothing")
    (tmp_path / "to-itself").symlink_to("to-itself")
    found = {entry.name: (entry.is_directory, entry.is_link) for entry in LOCAL.entries(str(tmp_path))}
    assert found == {
        "directory": (True, False),
        "file": (False, False),
        "to-directory": (True, True),
        "to-nothing": (False, True),
        "to-itself": (False, True),
    }


def test_a_device_is_no_file_of_events() -> None:
    """Only plain files are."""
    assert not stat.S_ISREG(source_of("/dev/null").stat("/dev/null").st_mode)
