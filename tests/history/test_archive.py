"""An archive has each row once, and never a torn file, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor_core.base.errors import EventsError
from supervisor_core.history.archive import Archive
from supervisor_core.history.formats import FileFormat, JsonLines
from supervisor_core.history.table import HistoryTable, Row
from supervisor_core.storage.local import LocalFilesystem
from tests.cases import each

DAY = 86_400.0


def row(table: HistoryTable, run: str, at: float, step: int = 0, **more: object) -> Row:
    """A row of a run at a moment."""
    found = table.row({"run": run, "step": step, "at": at, **more})
    assert found is not None
    return found


def parts(directory: Path) -> list[str]:
    """Every file that a reader of the tables sees, and what is left besides."""
    found = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not path.name.endswith(".lock"))


def test_rows_are_stored_by_day(form: FileFormat, table: HistoryTable, tmp_path: Path) -> None:
    """One file for each day and logdir, in the order of the times."""
    with Archive(str(tmp_path / "out"), "/runs", form) as archive:
        rows = [row(table, "b", 2.5 * DAY), row(table, "a", 2.4 * DAY), row(table, "a", 0.5 * DAY, 1)]
        assert archive.put(table, rows) == 3
        assert archive.rows(table, "1970-01-03") == [rows[1], rows[0]]
    days = [Path(part).parent.name for part in parts(tmp_path / "out")]
    assert days == ["day=1970-01-01", "day=1970-01-03"]


def test_the_same_rows_again_write_nothing(form: FileFormat, table: HistoryTable, tmp_path: Path) -> None:
    """Another process that stores what is there changes no byte and no file."""
    rows = [row(table, "a", DAY * day, day, labels={"team": "x"}, secs=0.1, ok=True) for day in range(3)]
    for expected in (3, 0):
        with Archive(str(tmp_path), "/runs", form) as archive:
            assert archive.put(table, rows) == expected
        stamps = {path: (tmp_path / path).stat().st_mtime_ns for path in parts(tmp_path)}
        if expected:
            before = stamps
    assert stamps == before


def test_a_row_replaces_the_one_with_its_key(form: FileFormat, table: HistoryTable, tmp_path: Path) -> None:
    """Others of its day, and what is no longer in the logdir, stay."""
    with Archive(str(tmp_path), "/runs", form) as archive:
        archive.put(table, [row(table, "a", 5.0, secs=1.0), row(table, "gone", 6.0)])
        assert archive.put(table, [row(table, "a", 5.0, secs=2.0)]) == 1
        assert archive.rows(table, "1970-01-01") == [row(table, "a", 5.0, secs=2.0), row(table, "gone", 6.0)]


@each("first, then", [(-1.0, 1.0), (1.0, -1.0)])
def test_a_row_that_moves_over_midnight_is_there_once(
    form: FileFormat, table: HistoryTable, tmp_path: Path, first: float, then: float
) -> None:
    """A start that was estimated, and is known better later, may be in another day."""
    with Archive(str(tmp_path), "/runs", form) as archive:
        archive.put(table, [row(table, "a", 5 * DAY + first), row(table, "b", 5 * DAY + first)])
        archive.put(table, [row(table, "a", 5 * DAY + then)], days=None)
        found = [each for day in ("1970-01-05", "1970-01-06") for each in archive.rows(table, day)]
    assert sorted(map(table.key_of, found)) == [("a", 0), ("b", 0)]


def test_rows_of_a_scope_are_replaced_together(form: FileFormat, table: HistoryTable, tmp_path: Path) -> None:
    """A day on which a run has no time any more, since more is known, has no row of it, and no file without rows."""
    table = replace(table, key=("run", "at"), scope=("run",))
    with Archive(str(tmp_path), "/runs", form) as archive:
        archive.put(table, [row(table, name, day * DAY) for name in "ab" for day in (2, 3)])
        archive.put(table, [row(table, "b", 4 * DAY)])
        assert archive.put(table, [row(table, "a", 2 * DAY, secs=1.0)], days=["1970-01-04"]) == 1
        assert archive.rows(table, "1970-01-04") == [row(table, "b", 3 * DAY)]
        archive.put(table, [row(table, "b", 2 * DAY)], days=None)
        assert archive.days(table) == ["1970-01-03"]
        assert archive.rows(table, "1970-01-03") == [row(table, "a", 2 * DAY, secs=1.0), row(table, "b", 2 * DAY)]


def test_two_logdirs_share_a_directory(table: HistoryTable, tmp_path: Path) -> None:
    """Each has files of its own, also where their runs have the same names."""
    with Archive(str(tmp_path), "/a", JsonLines()) as one, Archive(str(tmp_path), "/b", JsonLines()) as other:
        one.put(table, [row(table, "r", 5.0)])
        other.put(table, [row(table, "r", 5.0, secs=3.0)])
        assert one.rows(table, "1970-01-01") != other.rows(table, "1970-01-01")


def test_one_process_writes(table: HistoryTable, tmp_path: Path) -> None:
    """The second is refused, by name; once the first has ended, it may."""
    first = Archive(str(tmp_path), "/runs", JsonLines())
    with pytest.raises(EventsError, match="is written by another export of /runs"):
        Archive(str(tmp_path), "/runs", JsonLines())
    first.close()
    Archive(str(tmp_path), "/runs", JsonLines()).close()


@each("at", ["write", "sync", "replace"])
def test_a_full_disk_leaves_what_was_there(
    table: HistoryTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Whatever step fails, the file of before is whole, and nothing else is left; the next try succeeds."""
    with Archive(str(tmp_path), "/runs", JsonLines()) as archive:
        archive.put(table, [row(table, "a", 5.0)])
        before = parts(tmp_path)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        target: tuple[object, str] = {
            "write": (JsonLines, "writer"),
            "sync": (LocalFilesystem, "sync"),
            "replace": (os, "replace"),
        }[at]
        with monkeypatch.context() as patch:
            patch.setattr(*target, full)
            with pytest.raises(OSError, match="No space"):
                archive.put(table, [row(table, "b", 5.0)])
        assert parts(tmp_path) == before and len(archive.rows(table, "1970-01-01")) == 1
        assert archive.put(table, [row(table, "b", 5.0)]) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from supervisor_core.history import archive
from supervisor_core.history.formats import JsonLines
from supervisor_core.history.table import HistoryColumn, HistoryTable
columns = (HistoryColumn("run", "text", "."), HistoryColumn("step", "whole", "."), HistoryColumn("at", "time", "."))
table = HistoryTable(name="saves", day="at", key=("run", "step"), columns=columns)
left = int(sys.argv[2])
def counting(frame, event, argument):
    global left
    if event == "line" and frame.f_code.co_filename in (archive.__file__, sys.modules[JsonLines.__module__].__file__):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return counting
with archive.Archive(sys.argv[1], "/runs", JsonLines()) as found:
    sys.settrace(counting)
    print(found.put(table, [table.row({"run": "r", "step": n, "at": n * 43200.0}) for n in range(6)]))
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kill_at_any_line_leaves_no_torn_file(table: HistoryTable, tmp_path: Path) -> None:
    """Every file can be read after each kill, and the next export has each row once."""
    line, ended = 0, False
    while not ended:
        line += 7
        directory = tmp_path / str(line)
        done = subprocess.run([sys.executable, "-c", KILLED, directory, str(line)], capture_output=True, check=False)
        ended = done.returncode == 0
        assert ended or done.returncode == -signal.SIGKILL, done.stderr
        with Archive(str(directory), "/runs", JsonLines()) as archive:
            rows = [row(table, "r", number * 43200.0, number) for number in range(6)]
            for day in ("1970-01-01", "1970-01-02", "1970-01-03"):
                assert set(archive.rows(table, day)) <= set(rows)
            archive.put(table, rows)
            found = [each for day in ("1970-01-01", "1970-01-02", "1970-01-03") for each in archive.rows(table, day)]
        assert found == rows and len(parts(directory)) == 3
    assert line > 100


def test_a_damaged_file_is_not_overwritten(form: FileFormat, table: HistoryTable, tmp_path: Path) -> None:
    """It may hold the only rows of runs that are gone: the error names it, and what to do."""
    with Archive(str(tmp_path), "/runs", form) as archive:
        archive.put(table, [row(table, "a", 5.0)])
        (name,) = parts(tmp_path)
        (tmp_path / name).write_bytes(b"{torn")
        with pytest.raises(EventsError, match=r"is damaged: .*Move it away: the next export"):
            archive.put(table, [row(table, "b", 5.0)])
        assert (tmp_path / name).read_bytes() == b"{torn"


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _other(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make files of another user")
    path.write_text("")
    os.chown(path, 65534, 65534)


@each("make", [_fifo, _link, _other])
def test_what_others_put_there_is_refused(table: HistoryTable, tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A pipe that never answers, a link, another user's file: an error at once, and it stays."""
    with Archive(str(tmp_path), "/runs", JsonLines()) as archive:
        archive.put(table, [row(table, "a", 5.0)])
        (name,) = parts(tmp_path)
        (tmp_path / name).unlink()
        make(tmp_path / name)
        with pytest.raises(EventsError, match="is no file of this user"):
            archive.put(table, [row(table, "a", 6.0)])
        assert os.path.lexists(tmp_path / name)


@each("level", ["table", "day"])
@each("what", ["link", "other"])
def test_nothing_is_written_into_directories_of_others(
    level: str, what: str, table: HistoryTable, tmp_path: Path
) -> None:
    """A link to a directory, or another user's, in the place of a table's or a day's: an error, and it stays empty."""
    (tmp_path / "victim").mkdir()
    place = tmp_path / "out" / table.name
    place = place / "day=1970-01-01" if level == "day" else place
    place.parent.mkdir(parents=True)
    if what == "link":
        place.symlink_to(tmp_path / "victim")
    elif os.geteuid() != 0:
        pytest.skip("only root can make directories of another user")
    else:
        place.mkdir()
        os.chown(place, 65534, 65534)
    with (
        Archive(str(tmp_path / "out"), "/runs", JsonLines()) as archive,
        pytest.raises(EventsError, match="is no directory of this user"),
    ):
        archive.put(table, [row(table, "a", 5.0)])
    assert not list((tmp_path / "victim").iterdir())
    assert what == "link" or not list(place.iterdir())
