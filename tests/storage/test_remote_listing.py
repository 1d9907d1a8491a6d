"""What is known of a remote directory, and what knowing it costs: a store that counts, and a clock that is set."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any

import pytest

from supervisor_core.events.directory import DirectoryTree, is_events_file
from supervisor_core.storage import remote_listing
from supervisor_core.storage.barren import BarrenStretches, Skip
from supervisor_core.storage.remote_clients import LAST_NAME, Found, ListingPage
from supervisor_core.storage.remote_listing import FULL_SECS, SMALL_REQUESTS, RemoteListing

ROOT = "s3://bucket/logs"
LOOK_SECS = 15.0
PAGE = 1000


class Store:
    """Files by their paths, listed a thousand at a time; counts what is asked."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, float]] = {}
        self.order: list[str] = []
        self.pages: list[str] = []
        self.listed: list[str] = []
        self.read: list[str] = []
        self.broken: OSError | None = None
        self.refused = ""

    def put(self, name: str, size: int, at: float) -> None:
        path = f"{ROOT}/{name}"
        if path not in self.files:
            insort(self.order, path)
        self.files[path] = size, at

    def delete(self, below: str) -> None:
        for path in [path for path in self.order if path.startswith(f"{ROOT}/{below}")]:
            del self.files[path]
            self.order.remove(path)

    def page(self, root: str, after: str) -> ListingPage:
        self._ask(self.pages, after)
        start = bisect_right(self.order, max(after, f"{root}/"))
        found = self.order[start : start + PAGE]
        found = [path for path in found if path.startswith(f"{root}/")]
        is_last = not self.order[start + PAGE : start + PAGE + 1] or len(found) < PAGE
        files = [Found(path, *self.files[path]) for path in found if not path.endswith("/")]  # as of S3
        return ListingPage(files, None if is_last else found[-1], 1)

    def children(self, directory: str) -> tuple[list[Found], int]:
        self._ask(self.listed, directory)
        found: dict[str, Found] = {}
        for path in self.order[bisect_right(self.order, f"{directory}/") :]:
            if not path.startswith(f"{directory}/"):
                break
            name, _, rest = path.removeprefix(f"{directory}/").partition("/")
            found[name] = Found(f"{directory}/{name}", None) if rest else Found(path, *self.files[path])
        if not found:
            raise FileNotFoundError(directory)
        return list(found.values()), 1 + len(found) // PAGE

    def size_of(self, path: str) -> int | None:
        self._ask(self.read, path)
        if path == self.refused:
            raise PermissionError(path)
        return self.files[path][0]

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        self._ask(self.read, path)
        if path == self.refused:
            raise PermissionError(path)
        if path not in self.files:
            raise FileNotFoundError(path)
        size = self.files[path][0]
        if offset >= size:
            raise OSError(22, "The requested range is not satisfiable")
        return b"x" * min(length, size - offset)

    def _ask(self, asked: list[str], what: str) -> None:
        if self.broken is not None:
            raise self.broken
        asked.append(what)


EVENTS = "events.out.tfevents.1700000000.host"


class Fleet:
    """A store with runs, and the listing of it."""

    def __init__(self, clock: Any, runs: int, *, others: int = 0, checkpoints: int = 0, age: float = 1e6) -> None:
        self.clock, self.store = clock, Store()
        self.names = [f"run-{number:05}" for number in range(runs)]
        for name in self.names:
            self.events(name, age=age)
            for number in range(others):
                self.store.put(f"{name}/graph-{number}", 10, clock.now - age)
            for number in range(checkpoints):
                self.store.put(f"{name}/checkpoints/{number % 5}/{number}", 10, clock.now - age)
        self.listing = RemoteListing(self.store, ROOT, is_events_file, clock)
        self.listing.look()
        self.first = self.listing.listings
        self.asked()

    def events(self, run: str, size: int = 100, name: str = EVENTS, age: float = 0.0) -> None:
        self.store.put(f"{run}/{name}", size, self.clock.now - age)

    def look(self, secs: float = LOOK_SECS) -> tuple[int, int]:
        """Look once; return the numbers of listings and of reads."""
        self.clock.now += secs
        self.listing.look()
        assert self.listing.fault is None
        return self.asked()

    def asked(self) -> tuple[int, int]:
        store, listing = self.store, self.listing
        found = len(store.pages) + len(store.listed), len(store.read)
        store.pages.clear(), store.listed.clear(), store.read.clear()
        assert (listing.listings, listing.reads) >= found
        return found

    def until(self, condition: Any, most_secs: float) -> float:
        """Look until something is so; return how long that took."""
        began = self.clock.now
        while not condition():
            self.look()
            assert self.clock.now - began <= most_secs
        return float(self.clock.now - began)

    def knows(self, name: str) -> bool:
        return f"{ROOT}/{name}" in self.listing.sizes


@pytest.fixture
def clock(clock_at: Any) -> Any:
    """A clock long after runs began."""
    return clock_at(1_800_000_000.0)


def test_a_small_logdir_is_listed_whole_in_each_look(clock: Any) -> None:
    """One listing: what is new, has grown or is gone is known at once, and no file is read for that."""
    fleet = Fleet(clock, 20, age=10.0)
    assert fleet.look() == (1, 0)
    fleet.events("run-00003", size=150)
    fleet.events("team/new")
    fleet.store.delete("run-00007")
    assert fleet.look() == (1, 0)
    assert fleet.listing.sizes[f"{ROOT}/run-00003/{EVENTS}"] == 150
    assert fleet.knows(f"team/new/{EVENTS}") and not fleet.knows(f"run-00007/{EVENTS}")
    assert fleet.listing.fresh is None


def test_idle_runs_cost_next_to_nothing(clock: Any) -> None:
    """Ended runs: 0.1 requests for each run and look at the very most, at any number of files; here a hundredth."""
    fleet = Fleet(clock, 300, others=9, checkpoints=20)
    assert fleet.first > SMALL_REQUESTS
    looks = 100
    for _ in range(looks):
        fleet.look()
    assert fleet.listing.listings - fleet.first <= looks * (LOOK_SECS / 3 + LOOK_SECS / 6) + 1
    assert fleet.listing.reads == 0


def test_a_run_that_grows_costs_one_read(clock: Any) -> None:
    """Each look has what is new of each of them, by one request, whatever else there is."""
    fleet = Fleet(clock, 1_000, others=9)
    name, live = "events.out.tfevents.1800000000.host", fleet.names[::50]
    paths = [f"{ROOT}/{run}/{name}" for run in live]

    def grow(size: int) -> None:
        for run in live:
            fleet.events(run, size, name)

    grow(100)
    fleet.until(lambda: all(path in fleet.listing.sizes for path in paths), 3_600)
    grow(200)
    fleet.until(lambda: all(fleet.listing.sizes[path] == 200 for path in paths), 60)
    for size in (4_000, 30_000, 33_000):
        grow(size)
        assert fleet.look()[1] == len(live)
        for path in paths:
            assert fleet.listing.sizes[path] == size
            assert fleet.listing.tail_of(path, size - 50, 50) == b"x" * 50
    assert fleet.listing.tail_of(paths[0], 0, 50) is None


def test_a_run_that_has_stopped_is_asked_ever_more_rarely(clock: Any) -> None:
    """A quarter of the time of its silence passes between two requests; after an hour there is none."""
    fleet = Fleet(clock, 450, others=9)
    fleet.events("run-00000", size=500)
    fleet.until(lambda: fleet.listing.sizes[f"{ROOT}/run-00000/{EVENTS}"] == 500, 3_600)
    reads = [fleet.look()[1] for _ in range(2 * 3_600 // 15)]
    assert 10 <= sum(reads) <= 40 and sum(reads[-150:]) == 0
    fleet.events("run-00000", size=900)
    assert fleet.until(lambda: fleet.listing.sizes[f"{ROOT}/run-00000/{EVENTS}"] == 900, 120) <= 60


def test_a_next_session_is_found_by_a_check(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time of the silence after the run's end, however long a round takes."""
    fleet = Fleet(clock, 450, others=9, age=10.0)
    monkeypatch.setattr(remote_listing, "PAGE_SECS", 1e9)
    fleet.listing._round_at = clock.now + 1e9
    for _ in range(40):
        fleet.look()
    fleet.events("run-00449", name="events.out.tfevents.1800000600.host")
    assert fleet.until(lambda: fleet.knows("run-00449/events.out.tfevents.1800000600.host"), 330) >= LOOK_SECS


def test_what_goes_on_after_long_is_found_by_the_next_round(clock: Any) -> None:
    """Three seconds for each thousand names that are not passed over."""
    fleet = Fleet(clock, 2_000, others=9)
    for name in ("run-00000", "run-01000", "run-01999"):
        fleet.events(name, name="events.out.tfevents.1800009999.host")
        took = fleet.until(lambda name=name: fleet.knows(f"{name}/events.out.tfevents.1800009999.host"), 3_600)
        assert took <= 2 * 3 * 20 + 60


def test_new_runs_are_found_within_a_minute(clock: Any) -> None:
    """By a listing of the directory that they are in, which grows with the runs, not with their files."""
    fleet = Fleet(clock, 1_000, others=50)
    for number in range(5):
        fleet.events(f"run-x{number}")
        assert fleet.until(lambda number=number: fleet.knows(f"run-x{number}/{EVENTS}"), 75)
    fleet.store.delete("run-00500")
    fleet.until(lambda: not fleet.knows(f"run-00500/{EVENTS}"), 75)


def test_a_run_that_has_no_events_yet_is_looked_at_again(clock: Any) -> None:
    """Its directory appears first, its events file later."""
    fleet = Fleet(clock, 1_000, others=50)
    fleet.store.put("run-x/config.json", 10, clock.now)
    fleet.until(lambda: f"{ROOT}/run-x" in fleet.listing.entries, 75)
    for _ in range(8):
        fleet.look()
    fleet.events("run-x")
    fleet.until(lambda: fleet.knows(f"run-x/{EVENTS}"), 150)


def test_checkpoints_are_passed_over(clock: Any) -> None:
    """A later round does not list what the first has found to be long and without events; names in it are not known."""
    fleet = Fleet(clock, 20, checkpoints=3_000)
    assert fleet.first == 61
    fleet.until(lambda: fleet.listing._round is not None, 3_600)
    before, looks = fleet.listing.listings, 0
    while fleet.listing._round is not None:
        fleet.look()
        looks += 1
    assert fleet.listing.listings - before <= 21 + looks * 3
    assert f"{ROOT}/run-00003/checkpoints" not in fleet.listing.entries
    assert "checkpoints" in fleet.listing.entries[f"{ROOT}/run-00003"]
    for name in ("run-00000", "run-00019"):
        assert fleet.knows(f"{name}/{EVENTS}")


def test_a_full_round_comes_once_a_day(clock: Any) -> None:
    """A run that begins where nothing was is found then, at the latest; nothing that is there is lost."""
    fleet = Fleet(clock, 8, checkpoints=1_100)
    fleet.events("run-00004/checkpoints/evaluation")
    runs = set(fleet.listing.sizes)
    for _ in range(20):
        fleet.look(60)
    assert set(fleet.listing.sizes) == runs
    clock.now += FULL_SECS
    fleet.until(lambda: fleet.knows(f"run-00004/checkpoints/evaluation/{EVENTS}"), 3_600)
    for _ in range(20):
        fleet.look()
    assert set(fleet.listing.sizes) == runs | {f"{ROOT}/run-00004/checkpoints/evaluation/{EVENTS}"}


def test_a_run_that_comes_during_a_full_round_stays(clock: Any) -> None:
    """Also one whose directory the round has passed already."""
    fleet = Fleet(clock, 6_000, others=9)
    clock.now += FULL_SECS

    def is_half_way() -> bool:
        round = fleet.listing._round
        return round is not None and round.is_full and round.after > f"{ROOT}/run-02000"

    fleet.until(is_half_way, 3_600)
    fleet.events("run-01900a")
    fleet.until(lambda: fleet.knows(f"run-01900a/{EVENTS}"), 75)
    assert is_half_way()
    fleet.until(lambda: fleet.listing._full_at > clock.now - LOOK_SECS, 3_600)
    tree = DirectoryTree(ROOT, filesystem=_Source(fleet.listing))
    tree.refresh()
    assert "run-01900a" in dict(tree.runs()) and len(dict(tree.runs())) == 6_001


class _Source:
    """What a walk asks of a listing."""

    def __init__(self, listing: RemoteListing) -> None:
        from supervisor_core.storage.remote_source import RemoteSource

        self._source = RemoteSource.__new__(RemoteSource)
        self._source._listing = listing
        self.stat, self.entries, self.open = self._source.stat, self._source.entries, self._source.open


def test_files_that_are_gone_or_shorter(clock: Any) -> None:
    """A live run that is deleted is known to be with the next look; a file that was cut has its new size."""
    fleet = Fleet(clock, 1_000, others=9, age=10.0)
    fleet.store.delete("run-00001")
    fleet.events("run-00002", size=40)
    fleet.look()
    assert not fleet.knows(f"run-00001/{EVENTS}") and fleet.listing.sizes[f"{ROOT}/run-00002/{EVENTS}"] == 40
    fleet.events("run-00003", size=9_000_000)
    fleet.look()
    assert fleet.listing.sizes[f"{ROOT}/run-00003/{EVENTS}"] == 9_000_000


def test_a_store_that_fails_loses_nothing(clock: Any) -> None:
    """What is known stays, the reason is kept, and the next look goes on."""
    fleet = Fleet(clock, 1_000, others=9, age=10.0)
    fleet.store.broken = ConnectionError(104, "reset")
    clock.now += LOOK_SECS
    fleet.listing.look()
    assert isinstance(fleet.listing.fault, ConnectionError) and len(fleet.listing.sizes) == 1_000
    fleet.store.broken = None
    fleet.events("run-00003", size=150)
    fleet.look()
    assert fleet.listing.sizes[f"{ROOT}/run-00003/{EVENTS}"] == 150


def test_a_file_that_may_not_be_read_holds_up_nothing(clock: Any) -> None:
    """The others are read in each look, directories are listed, and it is not asked for in each look."""
    fleet = Fleet(clock, 1_000, others=9, age=10.0)
    fleet.store.refused = f"{ROOT}/run-00002/{EVENTS}"
    fleet.events("run-x")
    reads = [fleet.look()[1] for _ in range(5)]
    assert fleet.knows(f"run-x/{EVENTS}") and max(reads[2:]) <= 1_001
    fleet.events("run-00003", size=150)
    fleet.until(lambda: fleet.listing.sizes[f"{ROOT}/run-00003/{EVENTS}"] == 150, 60)


def test_keys_that_are_no_paths(clock: Any) -> None:
    """Markers of directories on a whole page, and keys with empty names in them."""
    fleet = Fleet(clock, 1_000, others=9)
    for number in range(1_500):
        fleet.store.put(f"0/{number:04}/", 0, clock.now)
    fleet.store.put(f"/a//{EVENTS}", 10, clock.now)
    fleet.store.put(f"b//{EVENTS}", 10, clock.now)
    fleet.events("zz")
    fleet.until(lambda: fleet.knows(f"zz/{EVENTS}"), 3_600)
    tree = DirectoryTree(ROOT, filesystem=_Source(fleet.listing))
    tree.refresh()
    assert len(dict(tree.runs())) == 1_001


def test_after_a_pause_no_burst(clock: Any) -> None:
    """An exporter that was suspended for a day lists no more than one of a minute."""
    fleet = Fleet(clock, 2_000, others=9)
    assert fleet.look(FULL_SECS / 2)[0] <= 20 + 10 + 2


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["a/1", "a/2", "a/3", "b/events"], [("a/", "a/")]),
        (["a/1", "b/1", "b/2", "c/events"], [("a/", "b/")]),
        (["a/1", "b", "c/1", "c/2", "d/events"], []),
        (["a/x/1", "a/y/2", "a/z/3", "events"], [("a/", "a/")]),
        (["r/a/1", "r/a/2", "r/a/3", "r/events", "s/1", "s/2", "s/3"], [("r/a/", "r/a/"), ("s/", "s/")]),
        (["a/1", "a/2", "a/3"], []),
        (["a/1", "a/2", "a/3", "a/events"], []),
        (["a-b/1", "a/1", "a/2", "events"], [("a-b/", "a/")]),
    ],
)
def test_stretches(names: list[str], found: list[tuple[str, str]]) -> None:
    """Whole directories beside one another, three names or more, in a directory that has events somewhere."""
    stretches = BarrenStretches("/logs", least=3)
    emitted = [skip for name in names for skip in stretches.add(f"/logs/{name}", "events" in name)]
    emitted += stretches.finish()
    expected = [Skip(f"/logs/{first}", f"/logs/{last}{LAST_NAME}", ()) for first, last in found]
    assert sorted(stretches.found) == expected
    assert sorted(skip._replace(directories=()) for skip in emitted) == expected
