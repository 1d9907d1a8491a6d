"""What stands in for a function of the system where that is missing does the same."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from supervisor_core.base.systems import free_bytes, read_at, user_id, user_name
from supervisor_core.storage import opening


def test_any_place_of_a_file_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order, up to its end."""
    (tmp_path / "file").write_bytes(b"0123456789")
    monkeypatch.delattr(os, "pread")
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        parts = [read_at(descriptor, 3, offset) for offset in (7, 2, 9, 10)]
    finally:
        os.close(descriptor)
    assert parts == [b"789", b"234", b"9", b""]


def test_what_the_disk_has_is_known_without_the_number_of_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `shutil` says."""
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 2, 7))
    monkeypatch.delattr(os, "statvfs")
    assert free_bytes(str(tmp_path)) == 7


def test_no_link_is_followed_where_no_open_keeps_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as the file nor as a directory on the way to it."""
    monkeypatch.setattr(opening, "NO_FOLLOW", 0)
    monkeypatch.setattr(opening, "_HAS_FOLDERS", False)
    (tmp_path / "top" / "in").mkdir(parents=True)
    (tmp_path / "top" / "in" / "file").write_text("x")
    (tmp_path / "top" / "link").symlink_to("in/file")
    (tmp_path / "top" / "folder").symlink_to("in")
    top = str(tmp_path / "top")
    os.close(opening.open_unlinked(f"{top}/in/file"))
    os.close(opening.open_below(top, "in/file"))
    for refused in (
        lambda: opening.open_unlinked(f"{top}/link"),
        lambda: opening.open_below(top, "link"),
        lambda: opening.open_below(top, "folder/file"),
        lambda: opening.open_below(f"{top}/folder", "file"),
    ):
        with pytest.raises(OSError) as failure:
            refused()
        assert failure.value.errno == errno.ELOOP


def test_there_is_one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom every file belongs to; it need not have a name."""
    assert user_id() == os.geteuid()
    monkeypatch.delattr(os, "geteuid")
    assert user_id() == 0 and user_name(2**31 - 7) is None
