from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from supervisor_core.storage.local import LOCAL, source_of


def test_a_read_gets_all_there_is(tmp_path: Path) -> None:
    """Any place, any length; fewer bytes only where the file ends."""
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    file = LOCAL.open(str(path))
    assert [file.read_at(0, 4), file.read_at(8, 4), file.read_at(10, 4)] == [b"0123", b"89", b""]
    file.close()


def test_short_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network disk that returns less than was asked is asked again."""
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, length, offset: whole(descriptor, min(length, 3), offset))
    file = LOCAL.open(str(path))
    assert file.read_at(1, 100) == b"123456789"
    file.close()


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
