from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.events import events_file
from supervisor_core.events.event_format import Batch, BatchEncoder
from supervisor_core.events.events_file import EventsFile, SyncError

RECORD_BYTES = len(b"".join(BatchEncoder().encode([("a", 1.0, 1, 1.0)]).chunks))


def batch_of(*steps: int) -> Batch:
    """A scalar at each step."""
    return BatchEncoder().encode([("a", 1.0, step, 1.0) for step in steps])


@pytest.fixture
def file(tmp_path: Path, faulty: Any, clock: Any) -> EventsFile:
    """An events file with the steps 1 and 2 in it."""
    file = EventsFile(str(tmp_path / "run"), faulty, clock, "")
    file.open()
    file.append(batch_of(1, 2))
    return file


def test_a_new_file_opens_with_its_version(tmp_path: Path, clock: Any, faulty: Any, read_file: Any) -> None:
    """The directory is made, and the file says version, time and writer before any event."""
    file = EventsFile(str(tmp_path / "a" / "b"), faulty, clock, ".sfx")
    file.open()
    assert file.path is not None and Path(file.path).parent == tmp_path / "a" / "b"
    assert Path(file.path).name.startswith("events.out.tfevents.1700000000.") and file.path.endswith(".sfx")
    contents = read_file(file.path)
    assert (contents.events, contents.torn_bytes, file.opened, file.written) == ([], 0, 1, 0)


def test_a_name_that_is_taken_is_not_used(
    tmp_path: Path, clock: Any, faulty: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another process made the very name first, the next one is taken, and the other's file stays as it is."""
    monkeypatch.setattr(events_file, "_counter", iter([7, 8]))
    taken = tmp_path / events_file.events_filename(clock.wall())
    taken.write_bytes(b"another's")
    monkeypatch.setattr(events_file, "_counter", iter([7, 8]))
    file = EventsFile(str(tmp_path), faulty, clock, "")
    file.open()
    assert file.path is not None and file.path.endswith(".0008")
    assert taken.read_bytes() == b"another's"


@pytest.mark.parametrize("room", [0, 1, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 5, 3 * RECORD_BYTES - 1])
def test_a_full_disk_leaves_whole_records(room: int, file: EventsFile, faulty: Any, read_file: Any) -> None:
    """Wherever the disk ran full, the file ends with a whole record, and the rest follows in it when there is room."""
    batch = batch_of(3, 4, 5)
    faulty.room = room
    with pytest.raises(OSError, match="No space left"):
        file.append(batch)
    fitted = room // RECORD_BYTES
    contents = read_file(file.path)
    assert (contents.steps, contents.torn_bytes) == ([1, 2, 3, 4, 5][: 2 + fitted], 0)
    assert (batch.events, file.written) == (3 - fitted, 2 + fitted)
    faulty.room = None
    file.append(batch)
    assert read_file(file.path).steps == [1, 2, 3, 4, 5]
    assert (file.opened, file.written) == (1, 5)


def test_after_another_error_a_new_file_takes_over(
    file: EventsFile, faulty: Any, io_error: OSError, read_logdir: Callable[..., Any]
) -> None:
    """A file whose disk sector is broken ends with its last whole record; what did not fit begins the next file."""
    batch = batch_of(3, 4, 5)
    faulty.append_error = io_error
    with pytest.raises(OSError, match="Input/output error"):
        file.append(batch)
    faulty.append_error = None
    file.append(batch)
    first, second = read_logdir(file.logdir)
    assert (first.steps, first.torn_bytes) == ([1, 2, 3], 0)
    assert (second.steps, second.torn_bytes) == ([4, 5], 0)


def test_a_file_that_cannot_be_cut_is_left_torn(file: EventsFile, faulty: Any, read_logdir: Callable[..., Any]) -> None:
    """Where truncation fails, the torn record stays at the very end of a file that nothing is appended to again."""
    batch = batch_of(3, 4)
    faulty.room, faulty.can_truncate = RECORD_BYTES + 9, False
    with pytest.raises(OSError, match="No space left"):
        file.append(batch)
    faulty.room = None
    file.append(batch)
    first, second = read_logdir(file.logdir)
    assert (first.steps, first.torn_bytes) == ([1, 2, 3], 9)
    assert (second.steps, second.torn_bytes) == ([4], 0)


def test_where_nothing_is_known_events_may_come_twice_and_never_not_at_all(
    file: EventsFile, faulty: Any, io_error: OSError, read_logdir: Callable[..., Any]
) -> None:
    """If not even the file's size can be asked, the whole batch is written again, to a new file."""
    batch = batch_of(3, 4)
    faulty.append_error, faulty.can_stat = io_error, False
    with pytest.raises(OSError, match="Input/output error"):
        file.append(batch)
    faulty.append_error = None
    file.append(batch)
    first, second = read_logdir(file.logdir)
    assert (first.steps[:2], second.steps) == ([1, 2], [3, 4])


def test_retries_on_a_broken_disk_leave_no_trail_of_files(
    tmp_path: Path, faulty: Any, clock: Any, io_error: OSError, read_logdir: Callable[..., Any]
) -> None:
    """A file without an event in it is used again, however often appending to it fails."""
    file = EventsFile(str(tmp_path), faulty, clock, "")
    file.open()
    for batch in (batch_of(1), batch_of(2)):
        faulty.append_error = io_error
        for _ in range(20):
            with pytest.raises(OSError):
                file.append(batch)
        faulty.append_error = None
        file.append(batch)
    assert [contents.steps for contents in read_logdir(tmp_path)] == [[1], [2]]


def test_a_new_file_that_cannot_be_made_leaves_the_batch_whole(
    file: EventsFile, faulty: Any, io_error: OSError, read_logdir: Callable[..., Any]
) -> None:
    """An outage that refuses appends and creations alike loses nothing of the batch."""
    batch = batch_of(3, 4)
    faulty.append_error = faulty.create_error = io_error
    for _ in range(3):
        with pytest.raises(OSError):
            file.append(batch)
    faulty.append_error = faulty.create_error = None
    file.append(batch)
    assert [step for contents in read_logdir(file.logdir) for step in contents.steps] == [1, 2, 3, 4]


def test_a_deleted_file_is_replaced(
    file: EventsFile, caplog: pytest.LogCaptureFixture, read_logdir: Callable[..., Any]
) -> None:
    """When somebody cleans the logdir, later events go to a file that exists, and the log says so."""
    assert file.path is not None
    Path(file.path).unlink()
    with caplog.at_level(logging.WARNING):
        file.append(batch_of(3))
    assert [contents.steps for contents in read_logdir(file.logdir)] == [[3]]
    assert "was deleted or renamed while in use" in caplog.text


def test_a_renamed_file_is_replaced(file: EventsFile, read_logdir: Callable[..., Any]) -> None:
    """What is appended to it would be in another place than the records say."""
    assert file.path is not None
    Path(file.path).rename(f"{file.path}.old")
    file.append(batch_of(3))
    assert Path(file.path).exists()
    assert [3] in [contents.steps for contents in read_logdir(file.logdir)]


def test_a_renamed_directory_may_come_back(file: EventsFile, read_logdir: Callable[..., Any]) -> None:
    """Nothing is appended meanwhile, no directory is made in its place, and the same file goes on."""
    path, away = file.path, Path(file.logdir).with_name("away")
    Path(file.logdir).rename(away)
    with pytest.raises(OSError, match=f"{file.logdir} was renamed to {away}: move it back"):
        file.append(batch_of(3))
    assert not Path(file.logdir).exists()
    away.rename(file.logdir)
    file.append(batch_of(4))
    assert file.path == path
    (contents,) = read_logdir(file.logdir)
    assert contents.steps[-1] == 4


def test_a_new_directory_in_the_place_of_a_renamed_one_gets_a_new_file(
    file: EventsFile, read_logdir: Callable[..., Any]
) -> None:
    """The run goes on there."""
    Path(file.logdir).rename(Path(file.logdir).with_name("away"))
    Path(file.logdir).mkdir()
    file.append(batch_of(3))
    assert [contents.steps for contents in read_logdir(file.logdir)] == [[3]]


def test_a_stale_handle_is_given_up(file: EventsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted on the server by another machine."""
    path, lstat = file.path, os.lstat

    def stale(path_of: str) -> os.stat_result:
        if path_of == path:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return lstat(path_of)

    monkeypatch.setattr("supervisor_core.storage.local.os.lstat", stale)
    file.append(batch_of(3))
    assert file.path != path


def test_a_failed_sync_is_reported_and_the_file_left(
    file: EventsFile, faulty: Any, io_error: OSError, read_logdir: Callable[..., Any]
) -> None:
    """What may be lost is counted, said once, and later events do not stand behind a possible hole."""
    faulty.sync_error = io_error
    with pytest.raises(SyncError, match=r"2 events in .* may not survive a power cut.*Input/output error"):
        file.sync()
    faulty.sync_error = None
    file.sync()
    file.append(batch_of(3))
    file.sync()
    assert [contents.steps for contents in read_logdir(file.logdir)] == [[1, 2], [3]]


def test_a_file_that_is_left_is_synced_first(file: EventsFile, faulty: Any, io_error: OSError) -> None:
    """Changing the file does not lose sight of what the old one had not synced: the next sync answers for it."""
    faulty.append_error = faulty.sync_error = io_error
    batch = batch_of(3, 4)
    with pytest.raises(OSError):
        file.append(batch)
    faulty.append_error = faulty.sync_error = None
    file.append(batch)
    with pytest.raises(SyncError, match="3 events"):
        file.sync()


def test_nothing_new_needs_no_sync(file: EventsFile, faulty: Any) -> None:
    """A sync after a sync does not bother the disk."""
    file.sync()
    file.sync()
    assert faulty.syncs == 1


def test_closing_lets_go_of_the_file(file: EventsFile, faulty: Any) -> None:
    """No descriptor stays open, however often it is closed."""
    file.close()
    file.close()
    assert faulty.log == ["close"]


def test_quota_is_a_full_disk_too(file: EventsFile, faulty: Any, read_logdir: Callable[..., Any]) -> None:
    """A user over quota goes on in the same file once there is room."""
    batch = batch_of(3)
    faulty.append_error = OSError(errno.EDQUOT, "Disk quota exceeded")
    with pytest.raises(OSError, match="quota"):
        file.append(batch)
    faulty.append_error = None
    file.append(batch)
    assert [contents.steps for contents in read_logdir(file.logdir)] == [[1, 2, 3]]
