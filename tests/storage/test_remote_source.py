"""Remote logdirs are read as local ones are, with few requests: fsspec's memory, and a store that counts."""

from __future__ import annotations

import errno
import stat
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor_core.events import EventsWriter
from supervisor_core.events.directory import DirectoryTree, is_events_file
from supervisor_core.events.index import LogdirIndex
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.storage import remote_source
from supervisor_core.storage.remote import RemoteFilesystem
from supervisor_core.storage.remote_source import LIVE_SECS, TOGETHER, RemoteSource
from tests.cases import each


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
            source._filesystem.client,
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


def test_a_remote_file_that_is_not_there(logdir: str) -> None:
    """The same word as for a local one."""
    reader = EventsFileReader(logdir + "/events.out.tfevents.1")
    assert reader.read() is None
    assert reader.facts().skipped == "it is gone"


def test_without_tensorboard_a_remote_logdir_is_written_and_read(logdir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that only monitors needs neither it nor TensorFlow."""
    for name in ("tensorflow", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    with EventsWriter(logdir) as writer:
        writer.scalar("loss", 1.0, 1)
    assert tuple(LogdirIndex(logdir).refresh().changed) == (".",)


class FailingStore:
    """A client of fsspec's kind whose library raises errors of its own."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        raise self.error


@each(
    "error, code",
    [
        (FileNotFoundError("x"), errno.ENOENT),
        (PermissionError("x"), errno.EACCES),
        (TimeoutError("x"), errno.EIO),
        (LookupError("the store says no"), errno.EIO),
    ],
)
def test_whatever_a_store_raises_becomes_an_error_of_the_system(error: Exception, code: int) -> None:
    """So that whoever reads handles one kind of error, and no store ends it."""
    source: Any = RemoteSource(RemoteFilesystem("x://a", FailingStore(error)))
    for ask in (
        lambda: source.stat("x://a"),
        lambda: source.open("x://a").read_at(0, 1),
        lambda: list(source.entries("x://a")),
    ):
        with pytest.raises(OSError) as caught:
            ask()
        assert caught.value.errno == code


def test_grown_files_are_fetched_together(logdir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is asked for many ranges at a time, never for more than the bound; each run gets its own events."""
    writers = [EventsWriter(f"{logdir}/run-{run:02}") for run in range(2 * TOGETHER + 5)]
    for step in (1, 2):
        for run, writer in enumerate(writers):
            writer.scalar("loss", float(run), step)
    for writer in writers:
        writer.close()
    index = LogdirIndex(logdir)
    client: Any = index._source._filesystem.client  # type: ignore[attr-defined]
    asked: list[int] = []
    cat_ranges = client.cat_ranges

    def fetch(paths: list[str], *arguments: Any, **more: Any) -> list[bytes]:
        asked.append(len(paths))
        return cat_ranges(paths, *arguments, **more)  # type: ignore[no-any-return]

    monkeypatch.setattr(client, "cat_ranges", fetch)
    changed = index.refresh().changed
    assert asked == [TOGETHER, TOGETHER, 5]
    assert [changed[f"run-{run:02}"][0].scalars["loss"].values.tolist() for run in range(len(writers))] == [
        [run, run] for run in range(len(writers))
    ]


def test_what_cannot_be_fetched_costs_no_other_file(logdir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the store refuses is named; it is read at the next look."""
    for run in range(20):
        with EventsWriter(f"{logdir}/run-{run:02}") as writer:
            writer.scalar("loss", 1.0, run)
    index = LogdirIndex(logdir)
    client: Any = index._source._filesystem.client  # type: ignore[attr-defined]
    cat_file = client.cat_file

    def fetch(path: str, *arguments: Any, **more: Any) -> bytes:
        if "run-03" in path:
            raise PermissionError("no")
        data: bytes = cat_file(path, *arguments, **more)
        return data

    with monkeypatch.context() as refusing:
        refusing.setattr(client, "cat_file", fetch)
        assert len(index.refresh().changed) == 19
    assert index.runs["run-03"].files[0].skipped == "no permission to read it"
    assert list(index.refresh().changed) == ["run-03"]


ROOT = "s3://bucket/logs"
EVENTS = "events.out.tfevents.1700000000.host"
LOOK_SECS = 15.0


class Store:
    """A client of fsspec's kind for files by their paths; counts what is asked."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, float]] = {}
        self.asked: list[str] = []
        self.broken: OSError | None = None
        self.refused = ""

    def invalidate_cache(self) -> None:
        pass

    def _strip_protocol(self, path: str) -> str:
        return path.removeprefix("s3://")

    def _facts(self, path: str) -> dict[str, Any]:
        size, at = self.files[path]
        return {"name": self._strip_protocol(path), "type": "file", "size": size, "mtime": at}

    def find(self, root: str, detail: bool) -> dict[str, Any]:
        self._ask("find")
        return {path: self._facts(path) for path in self.files if path.startswith(f"{root}/")}

    def info(self, path: str) -> dict[str, Any]:
        self._ask("info")
        if path == self.refused:
            raise PermissionError(path)
        if path not in self.files:
            raise FileNotFoundError(path)
        return self._facts(path)

    def sizes(self, paths: list[str]) -> list[int]:
        return [self.info(path)["size"] for path in paths]

    def _ask(self, what: str) -> None:
        if self.broken is not None:
            raise self.broken
        self.asked.append(what)


class Fleet:
    """A store with runs, and what is known of it."""

    def __init__(self, clock: Any, runs: int, *, age: float = 10.0) -> None:
        self.clock, self.store = clock, Store()
        for number in range(runs):
            self.put(f"run-{number:03}/{EVENTS}", age=age)
        self.source = RemoteSource(RemoteFilesystem(ROOT, self.store))
        self.look(0.0)

    def put(self, name: str, size: int = 100, age: float = 0.0) -> None:
        self.store.files[f"{ROOT}/{name}"] = size, self.clock.now - age

    def look(self, secs: float = LOOK_SECS) -> list[str]:
        """Look; return what was asked of the store."""
        self.clock.now += secs
        self.store.asked.clear()
        self.source.look(ROOT, is_events_file, self.clock)
        return list(self.store.asked)

    def size(self, run: str) -> int:
        return self.source.stat(f"{ROOT}/{run}/{EVENTS}").st_size

    def runs(self) -> list[str]:
        tree = DirectoryTree(ROOT, filesystem=self.source, clock=self.clock)
        tree.refresh()
        assert "info" not in self.store.asked
        return [name for name, _ in tree.runs()]


@pytest.fixture
def fleet(clock_at: Any, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Twenty live runs of which every fifth look may list the names: a request lists five."""
    monkeypatch.setattr(remote_source, "NAMES_OF_A_REQUEST", 5)
    monkeypatch.setattr(remote_source, "LOOK_LISTINGS", 1)
    return Fleet(clock_at(1_800_000_000.0), 20)


def test_a_large_logdir_is_listed_as_often_as_the_bound_allows(fleet: Fleet) -> None:
    """Between, the sizes of live files are asked for: what grows is known in each look, a new run with the next
    listing."""
    fleet.put(f"new/{EVENTS}")
    for size in (200, 300, 400, 500):
        fleet.put(f"run-003/{EVENTS}", size)
        assert fleet.look() == ["info"] * 20
        assert fleet.size("run-003") == size
    assert fleet.look() == ["find"]
    assert fleet.size("new") == 100


def test_sizes_are_asked_for_in_turns_up_to_the_bound(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many live runs each is looked at after a while."""
    monkeypatch.setattr(remote_source, "LOOK_SIZES", 8)
    for number in range(20):
        fleet.put(f"run-{number:03}/{EVENTS}", 200)
    assert [len(fleet.look()) for _ in range(3)] == [8, 8, 8]
    assert {fleet.size(f"run-{number:03}") for number in range(20)} == {200}


def test_ended_runs_cost_their_part_of_a_listing(fleet: Fleet) -> None:
    """After an hour without new events nothing is asked of a file but with all others; it may go on."""
    fleet.look(LIVE_SECS)
    fleet.put(f"run-003/{EVENTS}", 200)
    assert [fleet.look() for _ in range(5)] == [[], [], [], ["find"], ["info"]]
    assert fleet.size("run-003") == 200


def test_a_live_run_that_is_deleted_is_gone_at_the_next_look(fleet: Fleet) -> None:
    """Its directory is there until the next listing."""
    del fleet.store.files[f"{ROOT}/run-001/{EVENTS}"]
    fleet.look()
    with pytest.raises(FileNotFoundError):
        fleet.size("run-001")
    fleet.store.asked.clear()
    assert len(fleet.runs()) == 19


def test_a_store_that_fails_loses_nothing(fleet: Fleet) -> None:
    """What is known stays, the root says why, and the next look goes on."""
    fleet.store.broken = ConnectionError(104, "reset")
    fleet.look()
    with pytest.raises(ConnectionError):
        fleet.source.stat(ROOT)
    assert fleet.size("run-003") == 100
    fleet.store.broken = None
    fleet.put(f"run-003/{EVENTS}", 150)
    fleet.look()
    assert fleet.size("run-003") == 150 and stat.S_ISDIR(fleet.source.stat(ROOT).st_mode)


def test_a_file_that_may_not_be_read_holds_up_nothing(fleet: Fleet) -> None:
    """The sizes of the others are known."""
    fleet.store.refused = f"{ROOT}/run-002/{EVENTS}"
    fleet.put(f"run-003/{EVENTS}", 150)
    fleet.look()
    assert (fleet.size("run-002"), fleet.size("run-003")) == (100, 150)
    assert stat.S_ISDIR(fleet.source.stat(ROOT).st_mode)


def test_keys_that_are_no_paths(fleet: Fleet) -> None:
    """Keys with empty names in them, or with what leads elsewhere in a file system, are no runs, and hide none."""
    for name in ("/a//", "b//", "./", "../x/", "run-001/../", "run-002/./", "zz/"):
        fleet.put(f"{name}{EVENTS}")
    while "find" not in fleet.look():
        pass
    tree = DirectoryTree(ROOT, filesystem=fleet.source, clock=fleet.clock)
    for _ in range(2):
        tree.refresh()
        assert [name for name, _ in tree.runs()] == sorted([*(f"run-{number:03}" for number in range(20)), "zz"])


def test_deep_keys_cost_memory_in_proportion(fleet: Fleet) -> None:
    """A key of a thousand directories is looked into for some levels, which is a problem of the logdir."""
    fleet.put(f"{'d/' * 1000}{EVENTS}")
    while "find" not in fleet.look():
        pass
    tree = DirectoryTree(ROOT, filesystem=fleet.source, clock=fleet.clock)
    tree.refresh()
    assert [len(list(found)) for found in (tree.runs(), tree.problems())] == [20, 1]
    assert len(fleet.source._names) < 100


def test_directories_without_events_are_not_walked(fleet: Fleet) -> None:
    """Those of thousands of checkpoints, say: but their names are known."""
    for number in range(1000):
        fleet.put(f"run-001/ckpt-{number}/part")
    while "find" not in fleet.look():
        pass
    tree = DirectoryTree(ROOT, filesystem=fleet.source, clock=fleet.clock)
    tree.refresh()
    assert len(tree._known) == 21
    assert len((fleet.source.names(f"{ROOT}/run-001") or ((),))[0]) == 1001
