from __future__ import annotations

import io
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from supervisor_core.events import EventsWriter
from supervisor_core.events.events_file import EventsFile
from supervisor_core.storage.local import append_filesystem_for
from supervisor_core.storage.remote import RemoteAppendFile, RemoteFilesystem


class FakeStore:
    """A client of fsspec's kind for a store in a dict; it may be unable to append."""

    def __init__(self, *, appends: bool = True) -> None:
        self.objects: dict[str, bytes] = {}
        self.appends = appends
        self.log: list[str] = []
        self.error: Exception | None = None

    def invalidate_cache(self) -> None:
        pass

    def exists(self, path: str) -> bool:
        return path in self.objects

    def makedirs(self, path: str, exist_ok: bool) -> None:
        self.log.append("make_dirs")

    def info(self, path: str) -> dict[str, Any]:
        return {"name": path, "type": "file", "size": len(self.objects[path])}

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        return self.objects[path][start:end]

    def pipe_file(self, path: str, data: bytes) -> None:
        self.log.append("write")
        if self.error is not None:
            raise self.error
        self.objects[path] = data

    @contextmanager
    def open(self, path: str, mode: str) -> Iterator[io.BytesIO]:
        self.log.append("append")
        if not self.appends:
            raise NotImplementedError("File mode not supported")
        if self.error is not None:
            raise self.error
        file = io.BytesIO()
        yield file
        self.objects[path] += file.getvalue()


@pytest.fixture
def memory() -> Iterator[Any]:
    """The memory:// file system of fsspec, and a directory of its own in it."""
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")
    filesystem.events_logdir = f"memory://run-{uuid.uuid4().hex}"
    yield filesystem
    filesystem.rm(filesystem.events_logdir, recursive=True)


def test_events_go_where_the_scheme_says(memory: Any, read_bytes: Callable[..., Any]) -> None:
    """A memory:// logdir gets the same file, record by record, that a local one gets."""
    with EventsWriter(memory.events_logdir) as writer:
        writer.scalar("a", 1.0, 1)
        writer.flush()
        writer.scalar("a", 2.0, 2)
        writer.sync()
        path = writer.path
    assert path is not None and path.startswith(memory.events_logdir + "/events.out.tfevents.")
    (stored,) = memory.ls(memory.events_logdir, detail=False)
    assert stored.endswith(os.path.basename(path))
    contents = read_bytes(memory.cat_file(stored))
    assert (contents.steps, contents.torn_bytes) == ([1, 2], 0)


def test_reopening_is_another_remote_file(memory: Any, read_bytes: Callable[..., Any]) -> None:
    """Closing and reopening within a second loses nothing remotely either."""
    writer = EventsWriter(memory.events_logdir)
    for step in range(3):
        writer.scalar("a", 1.0, step + 1)
        writer.close()
        writer.reopen()
    writer.close()
    files = sorted(memory.ls(memory.events_logdir, detail=False))
    assert [read_bytes(memory.cat_file(path)).steps for path in files] == [[1], [2], [3], []]


def test_nothing_is_overwritten() -> None:
    """A name that is taken is refused, as locally."""
    store = FakeStore()
    store.objects["x://a"] = b"there"
    with pytest.raises(FileExistsError):
        RemoteFilesystem("x://a", store).create("x://a", b"new")
    assert store.objects["x://a"] == b"there"


def test_each_append_is_one_request() -> None:
    """The chunks of a batch travel together."""
    store = FakeStore()
    file = RemoteFilesystem("x://a", store).create("x://a", b"1")
    file.append([b"2", b"3", b"4"])
    assert (store.log, store.objects["x://a"]) == (["write", "append"], b"1234")


def test_a_store_that_cannot_append_gets_the_whole_file() -> None:
    """Where appending is refused, everything written so far is rewritten, and each request is made once."""
    store = FakeStore(appends=False)
    file = RemoteFilesystem("x://a", store).create("x://a", b"1")
    file.append([b"2"])
    file.append([b"3"])
    assert store.objects["x://a"] == b"123"
    assert store.log == ["write", "append", "write", "write"]


def test_a_failed_whole_write_is_not_taken_for_written() -> None:
    """After an outage the copy in memory holds exactly what the store acknowledged."""
    store = FakeStore(appends=False)
    file = RemoteFilesystem("x://a", store).create("x://a", b"1")
    store.error = ConnectionError("gone")
    with pytest.raises(ConnectionError):
        file.append([b"2"])
    store.error = None
    file.append([b"2"])
    assert store.objects["x://a"] == b"12"


def test_after_a_remote_failure_nothing_is_lost(clock: Any, read_bytes: Callable[..., Any]) -> None:
    """A batch that a store refused goes into a file that it accepts, once, whatever the client raised."""
    from supervisor_core.events.event_format import BatchEncoder

    store = FakeStore()
    file = EventsFile("x://run", RemoteFilesystem("x://a", store), clock, "")
    file.open()
    encoder = BatchEncoder()
    file.append(encoder.encode([("a", 1.0, 1, 1.0)]))
    batch = encoder.encode([("a", 1.0, 2, 1.0)])
    store.error = RuntimeError("503")
    with pytest.raises(RuntimeError):
        file.append(batch)
    store.error = None
    file.append(batch)
    assert [read_bytes(data).steps for data in store.objects.values()] == [[1], [2]]


def test_a_remote_file_cannot_be_cut() -> None:
    """Truncation is refused, so that the writer begins a new file instead."""
    with pytest.raises(OSError):
        RemoteAppendFile(RemoteFilesystem("x://a", FakeStore()), "x://a").truncate(3)


def test_remote_events_are_gathered() -> None:
    """A remote file system asks for few, large appends."""
    pytest.importorskip("fsspec")
    assert append_filesystem_for("memory://run").prompt is False
    assert append_filesystem_for("/run").prompt is True


def test_a_whole_file_can_be_put(memory: Any) -> None:
    """What belongs beside the events (a plugin's assets) is written whole, again and again."""
    filesystem = append_filesystem_for(memory.events_logdir)
    filesystem.make_directory(memory.events_logdir + "/plugins")
    for content in (b"old and long", b"new"):
        filesystem.replace(memory.events_logdir + "/plugins/a", content)
    assert memory.cat_file(memory.events_logdir + "/plugins/a") == b"new"
