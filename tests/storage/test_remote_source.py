from __future__ import annotations

import contextlib
import errno
import sys
import threading
import types
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor_core.errors import EventsError
from supervisor_core.events import EventsWriter
from supervisor_core.events.index import LogdirIndex
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.install import install_command
from supervisor_core.storage.remote import RemoteFilesystem
from supervisor_core.storage.remote_source import PARALLEL_REQUESTS, RANGE_BYTES, Range, ReadAhead, RemoteSource


@pytest.fixture
def logdir() -> Iterator[str]:
    """A directory of its own in fsspec's memory://."""
    fsspec = pytest.importorskip("fsspec")
    name = f"memory://logs-{uuid.uuid4().hex}"
    yield name
    filesystem = fsspec.filesystem("memory")
    if filesystem.exists(name):
        filesystem.rm(name, recursive=True)


def test_runs_of_a_remote_logdir_are_found_and_followed(logdir: str) -> None:
    """As locally: names relative to the logdir, each event once, runs that come and go."""
    with EventsWriter(logdir + "/a/b") as writer:
        writer.scalar("loss", 1.0, 1)
        writer.flush()
        index = LogdirIndex(logdir)
        first = index.refresh()
        assert tuple(first.changed) == ("a/b",) and index.refresh().changed == {}
        writer.scalar("loss", 2.0, 2)
        writer.flush()
        (chunk,) = index.refresh().changed["a/b"]
    assert chunk.scalars["loss"].values.tolist() == [2.0]
    with EventsWriter(logdir) as writer:
        writer.flush()
    assert tuple(index.refresh().changed) == (".",)
    assert index.runs["a/b"].files[0].path.startswith(logdir + "/a/b/events.out.tfevents.")


def test_a_remote_file_that_is_written_again_is_read_again(logdir: str) -> None:
    """Stores have no inodes: the bytes where reading stopped decide."""
    import fsspec

    path = logdir + "/events.out.tfevents.1700000000.host"
    files = []
    for count in (3, 5):
        with EventsWriter(f"{logdir}/{count}") as writer:
            for step in range(count):
                writer.scalar("loss", 1.0, 100 * count + step)
            writer.flush()
            files.append(fsspec.filesystem("memory").cat_file(writer.path))
    fsspec.filesystem("memory").pipe_file(path, files[0])
    reader = EventsFileReader(path)
    reader.read()
    fsspec.filesystem("memory").pipe_file(path, files[1])
    chunk = reader.read()
    assert chunk is not None and chunk.from_start
    assert chunk.scalars["loss"].steps.tolist() == [500, 501, 502, 503, 504]


def test_a_look_is_one_listing(logdir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs there are: idle ones cost nothing but their part of one listing, a grown file its new bytes."""
    import fsspec

    writers = [EventsWriter(f"{logdir}/team-{run % 3}/run-{run}") for run in range(30)]
    for writer in writers:
        writer.scalar("loss", 1.0, 1)
        writer.flush()
    index = LogdirIndex(logdir)
    assert len(index.refresh().changed) == 30
    source = index._source
    assert isinstance(source, RemoteSource)
    asked: list[str] = []
    filesystem = fsspec.filesystem("memory")
    for name in ("ls", "info", "find", "cat_file"):
        call = getattr(filesystem, name)
        monkeypatch.setattr(
            source._client._filesystem,  # type: ignore[attr-defined]
            name,
            lambda *arguments, call=call, name=name, **more: asked.append(name) or call(*arguments, **more),
        )
    before = source.requests
    assert index.refresh().changed == {}
    assert [name for name in asked if name in ("find", "cat_file")] == ["find"] and source.requests == before + 1
    assert source.names(f"{logdir}/team-0") == ([f"run-{run}" for run in sorted(range(0, 30, 3), key=str)], True)
    asked.clear()
    writers[7].scalar("loss", 2.0, 2)
    writers[7].flush()
    assert list(index.refresh().changed) == ["team-1/run-7"]
    assert asked.count("cat_file") == 1
    for writer in writers:
        writer.close()


def test_a_grown_file_is_one_request(logdir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a logdir that is too large to be listed in each look: what shows that it has grown has what is new."""
    import fsspec

    from supervisor_core.storage import remote_listing

    monkeypatch.setattr(remote_listing, "SMALL_REQUESTS", 0)
    writers = [EventsWriter(f"{logdir}/run-{run}") for run in range(5)]
    for writer in writers:
        writer.scalar("loss", 1.0, 1)
        writer.flush()
    index = LogdirIndex(logdir)
    index.refresh()
    source = index._source
    assert isinstance(source, RemoteSource)
    for step in (2, 3, 4):
        for writer in writers:
            writer.scalar("loss", float(step), step)
            writer.flush()
        listings, reads = source.listings, source.reads
        changed = index.refresh().changed
        assert [chunks[0].scalars["loss"].steps.tolist() for chunks in changed.values()] == [[step]] * 5
        assert (source.listings, source.reads) == (listings, reads + 5)
    filesystem = fsspec.filesystem("memory")
    filesystem.rm(f"{logdir}/run-3", recursive=True)
    assert index.refresh().removed == ("run-3",)
    for writer in writers:
        writer.close()


def test_a_remote_file_that_is_not_there(logdir: str) -> None:
    """The same word as for a local one."""
    reader = EventsFileReader(logdir + "/events.out.tfevents.1")
    assert reader.read() is None
    assert reader.facts().skipped == "it is gone"


@pytest.mark.parametrize("path", ["nowhere://bucket/run", "gs://bucket/run"])
def test_a_file_system_that_is_not_installed_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One clear error with the scheme and what to install, before anything is read."""
    pytest.importorskip("fsspec")
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(EventsError, match=f"no file system for {path.partition(':')[0]}://.*Install fsspec"):
        LogdirIndex(path)


def test_without_tensorboard_what_fsspec_opens_is_read(logdir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that only monitors needs no TensorBoard; where it is needed, the error says what to install."""
    with EventsWriter(logdir) as writer:
        writer.scalar("loss", 1.0, 1)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.tensorflow_stub.io", None)
    assert tuple(LogdirIndex(logdir).refresh().changed) == (".",)
    with pytest.raises(EventsError, match="read events from 'nowhere://bucket'") as raised:
        LogdirIndex("nowhere://bucket")
    assert str(raised.value).endswith(install_command("tab"))


class FailingStore:
    """A gfile of a store whose library raises errors of its own."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def stat(self, path: str) -> Any:
        raise self.error

    def listdir(self, path: str) -> list[str]:
        raise self.error

    def GFile(self, path: str, mode: str) -> Any:  # noqa: N802 - TensorFlow's name
        raise self.error


def coded(error_code: int | None = None) -> Exception:
    """An error of a store's library, with one of the codes that TensorFlow's errors have."""
    error: Any = types.new_class("HttpError", (Exception,))("the store says no")
    error.error_code = error_code
    return error  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (coded(5), errno.ENOENT),
        (FileNotFoundError("x"), errno.ENOENT),
        (coded(7), errno.EACCES),
        (coded(16), errno.EACCES),
        (coded(), errno.EIO),
        (TimeoutError("x"), errno.EIO),
    ],
)
def test_whatever_a_store_raises_becomes_an_error_of_the_system(error: Exception, code: int) -> None:
    """So that whoever reads handles one kind of error, and no store ends it."""
    source: Any = RemoteSource(RemoteFilesystem(FailingStore(error)))
    for ask in (
        lambda: source.stat("x://a"),
        lambda: source.open("x://a").read_at(0, 1),
        lambda: list(source.entries("x://a")),
    ):
        with pytest.raises(OSError) as caught:
            ask()
        assert caught.value.errno == code


def test_grown_files_are_fetched_side_by_side(logdir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several requests are under way at once, never more than the bound; each run gets its own events."""
    writers = [EventsWriter(f"{logdir}/run-{run:02}") for run in range(3 * PARALLEL_REQUESTS)]
    for step in (1, 2):
        for run, writer in enumerate(writers):
            writer.scalar("loss", float(run), step)
    for writer in writers:
        writer.close()
    index = LogdirIndex(logdir)
    client: Any = index._source._client  # type: ignore[attr-defined]
    full, lock, under_way, most = threading.Barrier(PARALLEL_REQUESTS), threading.Lock(), 0, 0
    cat_file = client._filesystem.cat_file

    def fetch(*arguments: Any, **more: Any) -> bytes:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        with contextlib.suppress(threading.BrokenBarrierError):
            full.wait(30)  # until as many as there may be are under way, once
        full.abort()
        data: bytes = cat_file(*arguments, **more)
        with lock:
            under_way -= 1
        return data

    monkeypatch.setattr(client._filesystem, "cat_file", fetch)
    changed = index.refresh().changed
    assert most == PARALLEL_REQUESTS
    assert [changed[f"run-{run:02}"][0].scalars["loss"].values.tolist() for run in range(len(writers))] == [
        [run, run] for run in range(len(writers))
    ]


def test_fsspec_comes_before_tensorboard_s_own_client(logdir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard has one for S3 where boto3 is installed, and that asks several times for each directory."""
    from tensorboard.compat.tensorflow_stub.io import gfile

    with EventsWriter(f"{logdir}/run") as writer:
        writer.scalar("loss", 1.0, 1)
    monkeypatch.setitem(gfile._REGISTERED_FILESYSTEMS, "memory", object())
    index = LogdirIndex(logdir)
    assert tuple(index.refresh().changed) == ("run",)
    assert isinstance(index._source, RemoteSource) and index._source.requests == 2  # a listing, a range


def test_what_cannot_be_fetched_costs_no_other_file(logdir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the store refuses is named; it is read at the next look."""
    for run in range(20):
        with EventsWriter(f"{logdir}/run-{run:02}") as writer:
            writer.scalar("loss", 1.0, run)
    index = LogdirIndex(logdir)
    client: Any = index._source._client  # type: ignore[attr-defined]
    cat_file = client._filesystem.cat_file

    def fetch(path: str, *arguments: Any, **more: Any) -> bytes:
        if "run-03" in path:
            raise PermissionError("no")
        data: bytes = cat_file(path, *arguments, **more)
        return data

    with monkeypatch.context() as refusing:
        refusing.setattr(client._filesystem, "cat_file", fetch)
        assert len(index.refresh().changed) == 19
    assert index.runs["run-03"].files[0].skipped == "no permission to read it"
    assert list(index.refresh().changed) == ["run-03"]


def test_files_that_are_passed_over_hold_up_nothing() -> None:
    """Of ranges that the reader does not take, in whatever number, none keeps a request from those after it."""
    fetched: list[str] = []
    ranges = [Range(f"f{number}", 0, 10) for number in range(5 * PARALLEL_REQUESTS)]
    ahead = ReadAhead(lambda path, offset, length: fetched.append(path) or path.encode(), ranges)
    last = ranges[-1].path
    assert ahead.take(last, 0, 10) == last.encode()
    assert ahead.take("f0", 0, 10) is None  # let go of
    assert ahead.take(last, 0, RANGE_BYTES) is None and ahead.take("other", 0, 1) is None
    ahead.close()
    assert last in fetched
