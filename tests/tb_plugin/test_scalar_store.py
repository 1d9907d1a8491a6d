from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest

from supervisor_core.events.chunk import Chunk
from supervisor_core.events.columns import ColumnStore
from tb_plugin.scalar_store import NotRead, ScalarStore
from tests.conftest import StillClock
from tests.tb_plugin.conftest import NOW, FakeSource, points

PATIENCE_SECS = 30.0


def source(file: str, count: int, from_start: bool = False) -> FakeSource:
    """What hands out a file with this many points of the tag ``loss``."""
    column = list(range(1, count + 1))
    return FakeSource([Chunk(path=file, from_start=from_start, scalars={"loss": points(column, column, column)})])


class Store(ScalarStore):
    """A store of made-up runs, that counts how often each was read from the start."""

    def __init__(self, sources: dict[str, FakeSource], max_bytes: int = 1 << 20) -> None:
        self.opened: list[str] = []
        self.clock = StillClock(NOW)

        def opening(directory: str) -> FakeSource:
            self.opened.append(directory)
            return sources[directory]

        super().__init__(opening, max_bytes, 1.0, self.clock)

    def counts(self, directory: str, wait_secs: float = PATIENCE_SECS) -> dict[str, int]:
        """How many points each tag of a run has."""
        return {item["tag"]: item["points"] for item in self.run(directory, wait_secs).tags()}


def test_a_run_is_read_once_and_then_read_on() -> None:
    """However often it is asked for, a run is opened once; what is old is refreshed before it is answered."""
    made = source("/a/1", 3)
    store = Store({"/a": made})
    run = store.run("/a", PATIENCE_SECS)
    assert len(run.points("loss")["/a/1"]) == 3
    made.chunks += source("/a/1", 2).chunks + source("/a/2", 4).chunks
    assert store.counts("/a") == {"loss": 3}
    store.clock.now += 1.0
    assert store.counts("/a") == {"loss": 9}
    assert [len(columns) for columns in run.points("loss").values()] == [5, 4]
    assert store.opened == ["/a"]
    store.close()


def test_a_file_that_was_replaced_is_counted_again() -> None:
    """What a file had before it was replaced, or deleted, is gone."""
    made = source("/a/1", 3)
    store = Store({"/a": made})
    run = store.run("/a", PATIENCE_SECS)
    made.chunks += source("/a/1", 2, from_start=True).chunks
    store.clock.now += 1.0
    assert store.counts("/a") == {"loss": 2}
    assert run.bytes == 2 * 24 + 600
    made.chunks.append(Chunk(path="/a/1", from_start=True))
    store.clock.now += 1.0
    assert store.counts("/a") == {}
    assert (run.bytes, run.points("loss")) == (0, {})
    store.close()


def test_the_runs_asked_for_longest_ago_make_room() -> None:
    """Beyond the bound the store drops the runs requested longest ago; a run too big by itself is held alone."""
    store = Store({"/a": source("/a/1", 10), "/b": source("/b/1", 10), "/c": source("/c/1", 10)}, max_bytes=2_200)
    for directory in ("/a", "/b", "/a", "/c", "/a"):
        assert store.counts(directory) == {"loss": 10}
    assert store.opened == ["/a", "/b", "/c"]
    store.run("/b", PATIENCE_SECS)
    assert store.opened == ["/a", "/b", "/c", "/b"]
    store.close()
    big = Store({"/a": source("/a/1", 1_000)}, max_bytes=1_000)
    for _ in range(2):
        assert big.counts("/a") == {"loss": 1_000}
    assert big.opened == ["/a"]
    big.close()


def test_slow_storage_holds_up_no_request() -> None:
    """A request that does not wait gets the error that the run is being read, or what was read before."""
    made = source("/a/1", 3)
    store = Store({"/a": made})
    go_on = threading.Event()
    pieces = made.pieces

    def slowly() -> list[Chunk]:
        assert go_on.wait(PATIENCE_SECS)
        return pieces()

    made.pieces = slowly
    with pytest.raises(NotRead, match="being read") as caught:
        store.run("/a", 0.0)
    assert caught.value.problem is None
    go_on.set()
    assert store.counts("/a") == {"loss": 3}
    go_on.clear()
    store.clock.now += 1.0
    assert store.counts("/a", 0.0) == {"loss": 3}
    go_on.set()
    store.close()


def test_what_cannot_be_read_says_why_and_is_tried_again() -> None:
    """The request gets the storage's error; what was read before stays."""
    made = source("/a/1", 3)
    made.error = OSError("stale handle")
    store = Store({"/a": made})
    with pytest.raises(NotRead, match="stale handle"):
        store.run("/a", PATIENCE_SECS)
    made.error = None
    store.clock.now += 1.0
    assert store.counts("/a") == {"loss": 3}
    made.error = OSError("stale again")
    store.clock.now += 1.0
    assert store.counts("/a") == {"loss": 3}
    store.close()


def test_a_first_reading_that_fails_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece is passed over that was read when the memory ran out: the run is opened again."""
    sources = {"/a": source("/a/1", 3)}
    store = Store(sources)
    with monkeypatch.context() as full:
        full.setattr(ColumnStore, "add", Mock(side_effect=MemoryError))
        with pytest.raises(NotRead, match="MemoryError"):
            store.run("/a", PATIENCE_SECS)
    sources["/a"] = source("/a/1", 3)  # the same file, from its start
    store.clock.now += 1.0
    assert store.counts("/a") == {"loss": 3}
    assert store.opened == ["/a", "/a"]
    store.close()


def test_many_ask_at_once_and_it_is_read_once() -> None:
    """Requests that come together share one reading."""
    store = Store({"/a": source("/a/1", 3)})
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(store.counts("/a")["loss"])) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (seen, store.opened) == ([3] * 20, ["/a"])
    store.close()
