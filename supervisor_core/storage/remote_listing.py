"""`RemoteListing`: what is below a remote directory, kept up to date with few requests, however many files there are.

A listing costs twelve times as much as a read, and a listing of everything one for each thousand names, most of them of
checkpoints. So the first look lists everything, and later ones do what is due of this:

    tail      a read at the end of each watched file (an events file) that has grown within the last hour: one request
              shows whether it has grown, and has what is new. The longer it has not, the rarer
    check     a listing of the directory of a watched file that stopped growing: a next session has a file of its own
    children  a listing of the directories that hold runs, for new ones
    round     everything, a thousand names at a time, long stretches without watched files passed over. They are learned
              by a full round, the first and then one a day

Tails and checks cost in proportion to what is alive; the others take place at a fixed rate, so that their cost has a
limit, and what grows with the number of names is the time that a round takes. Where a round takes few requests there is
one in each look, and nothing else.
"""

from __future__ import annotations

import functools
import itertools
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from supervisor_core.clock import Clock
from supervisor_core.storage.barren import BarrenStretches, Skip
from supervisor_core.storage.filesystem import DirectoryEntry
from supervisor_core.storage.remote_clients import NAMES_OF_A_REQUEST, Found, ListingClient, ListingPage

SMALL_REQUESTS = 4
"""A round of no more takes place in each look."""
PAGE_SECS = 3.0
"""A longer one takes one listing in this time."""
ROUND_SECS = 60.0
"""The least time from the beginning of one round to that of the next, of directories that hold runs, too."""
LEAST_NAMES = 300
"""Stretches of at least this number of names are passed over."""
FULL_SECS = 86_400.0
"""How often a round passes over nothing."""
CHILDREN_SECS = 6.0
"""Directories that hold runs are listed with one request in this time."""
MOST_CHILDREN_REQUESTS = 100
"""Those directories that are listed for new runs: as many as take this number of requests, the shallowest first. What
is new in others is found by a round."""

WATCHED_SECS = 3600.0
"""A file that has not grown for longer has no tail."""
TAIL_SHARE = 0.25
"""A file that has not grown for a while is read again after this share of it."""
CHECK_SHARE = 1 / 3
"""So much of the time since a file grew has passed since its directory was listed when it is listed again: half of what
had passed then."""
CHECK_AFTER_SECS = 60.0
"""How long a file has not grown when its directory is first checked."""

BACK_BYTES = 4 * 1024
"""How far before the known end of a file its tail begins: a reader looks at the bytes before its position again."""
TAIL_BYTES = 64 * 1024
"""The length of a tail, beyond which a file's size is asked for."""
PARALLEL = 16
"""Tails that are read at the same time."""
NEW_REQUESTS = 5
"""Listings that a new directory gets; what is in it beyond is found by a round."""

_CHANGES = itertools.count(1)
_entry = functools.lru_cache(maxsize=50_000)(DirectoryEntry)
"""One object for a name that many directories have."""

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(slots=True)
class _Tail:
    """A watched file that may grow."""

    grown_at: float
    due: float
    checked_at: float


@dataclass(slots=True)
class _Round:
    """A walk through everything."""

    is_full: bool
    began: float
    after: str = ""
    requests: int = 0
    begun: set[str] = field(default_factory=set)
    """Directories of which the files are being listed."""
    stretches: BarrenStretches | None = None


class RemoteListing:
    """See the module's docstring. Used by one thread at a time.

    Args:
        client: lists and reads.
        root: the directory.
        is_watched: says by its name whether a file is one whose size must be known.
        clock: paces the requests; its wall time is compared with when files were written.
    """

    def __init__(self, client: ListingClient, root: str, is_watched: Callable[[str], bool], clock: Clock) -> None:
        self.root = root.rstrip("/")
        self.sizes: dict[str, int] = {}
        """Of the watched files."""
        self.entries: dict[str, dict[str, DirectoryEntry]] = {self.root: {}}
        """Directory -> name -> what it is. Of one that was passed over the names are unknown, and none are here."""
        self.versions: dict[str, int] = {}
        """Directory -> a number that is another one whenever its names have changed."""
        self.fresh: set[str] | None = set()
        """Directories listed in this look; None: all."""
        self.fault: OSError | None = None
        """Why the last look broke off; None where it did not."""
        self.is_complete = False
        """Whether everything has been listed once."""
        self.listings = 0
        """Requests that list names, so far."""
        self.reads = 0
        """Requests that read a file or its size, so far."""
        self._client = client
        self._is_watched = is_watched
        self._clock = clock
        self._watched: list[str] = []
        self._tails: dict[str, _Tail] = {}
        self._tailed: dict[str, tuple[int, bytes]] = {}
        self._skips: list[Skip] = []
        self._round: _Round | None = None
        self._round_requests = 0
        self._round_at = self._full_at = 0.0
        self._parents: list[str] = []
        self._parents_at = self._parents_from = 0.0
        self._new: dict[str, _Tail] = {}
        """Directories that appeared with no watched file in them."""

    def look(self) -> None:
        """Ask for what is due. Raises nothing: see `fault`."""
        now = self._clock.monotonic()
        self._tailed.clear()
        self.fault = None
        try:
            if not self.is_complete:
                self._whole_round(now, is_full=True)
                self.is_complete = True
                return
            self.fresh = set()
            if self._round_requests <= SMALL_REQUESTS:
                self._whole_round(now, is_full=self._is_full_due(now))
                return
            self._read_tails(now)
            self._check_directories(now)
            self._list_parents(now)
            self._go_on(now)
        except OSError as error:
            self.fault = error

    def release(self) -> None:
        """Let go of what this look has read."""
        self._tailed.clear()

    def tail_of(self, path: str, offset: int, length: int) -> bytes | None:
        """Return bytes of a file that this look has read; None where it has not."""
        start, data = self._tailed.get(path, (0, b""))
        is_within = start <= offset and offset + length <= start + len(data)
        return data[offset - start : offset - start + length] if is_within else None

    # A round

    def _whole_round(self, now: float, *, is_full: bool) -> None:
        round = self._begin_round(now, is_full=is_full)
        while not self._next_page(round, now):
            pass
        self.fresh = None
        self._round_at = now + max(ROUND_SECS, PAGE_SECS * round.requests)
        self._parents_at = self._parents_from = now + ROUND_SECS

    def _go_on(self, now: float) -> None:
        """Go on with the round, at its rate."""
        self._round_at = max(self._round_at, now - ROUND_SECS)  # after a pause not all at once
        while self._round_at <= now:
            round = self._round or self._begin_round(now, is_full=self._is_full_due(now))
            before = round.requests
            is_over = self._next_page(round, now)
            self._round_at += PAGE_SECS * (round.requests - before)
            if is_over:
                self._round_at = max(self._round_at, round.began + ROUND_SECS)

    def _is_full_due(self, now: float) -> bool:
        return now - self._full_at >= FULL_SECS

    def _begin_round(self, now: float, *, is_full: bool) -> _Round:
        stretches = BarrenStretches(self.root, LEAST_NAMES) if is_full else None
        self._round = _Round(is_full, now, stretches=stretches)
        return self._round

    def _next_page(self, round: _Round, now: float) -> bool:
        """List the next names; return whether the round is over."""
        page = self._client.page(self.root, round.after)
        self.listings += page.requests
        round.requests += page.requests
        self._forget_missing(page, round.after)
        for found in page.files:
            directory, _, name = found.path.rpartition("/")
            if round.stretches is not None:
                for skip in round.stretches.add(found.path, self._is_watched(name)):
                    self._pass_over(skip)
            elif self._skip_of(found.path) is not None:
                continue
            if directory not in round.begun:
                round.begun.add(directory)
                self._forget_names(directory)
            self._add(found, now)
        if page.last is not None:
            passed = None if round.is_full else self._skip_of(page.last)
            round.after = page.last if passed is None else passed.end
            return False
        self._round, self._round_requests = None, round.requests
        if round.stretches is not None:
            for skip in round.stretches.finish():
                self._pass_over(skip)
            self._skips, self._full_at = sorted(round.stretches.found), now
            self._forget_directories(round.begun)
            names = sum(map(len, self.entries.values()))
            self._round_requests = min(round.requests, 1 + names // NAMES_OF_A_REQUEST + len(self._skips))
        return True

    def _forget_missing(self, page: ListingPage, after: str) -> None:
        """Forget the watched files that would be on a page, and are not."""
        listed = {found.path for found in page.files}
        end = len(self._watched) if page.last is None else bisect_right(self._watched, page.last)
        for path in self._watched[bisect_right(self._watched, after) : end]:
            if path not in listed:
                self._remove(path)

    def _skip_of(self, path: str) -> Skip | None:
        """Return the stretch to be passed over that a path is in."""
        place = bisect_right(self._skips, path, key=lambda skip: skip.start) - 1
        return self._skips[place] if place >= 0 and path <= self._skips[place].end else None

    def _pass_over(self, skip: Skip) -> None:
        for directory in skip.directories:
            self.entries.pop(directory, None)
            self.versions.pop(directory, None)

    # Tails

    def _read_tails(self, now: float) -> None:
        due = [path for path, tail in self._tails.items() if tail.due <= now]
        starts = {path: max(0, self.sizes[path] - BACK_BYTES) for path in due}
        tails = _in_parallel(lambda path: self._read_tail(path, starts[path]), due)
        faults: dict[str, OSError] = {}
        for path, found in zip(due, tails, strict=True):
            self.reads += 1
            tail = self._tails.get(path)
            if tail is None:  # its directory has been listed since, and it was not there
                continue
            if isinstance(found, FileNotFoundError):
                self._remove(path)
                self._list(path.rpartition("/")[0], now)
                continue
            if isinstance(found, OSError):
                faults[path] = found
                continue
            size, data, requests = found
            self.reads += requests - 1
            if size != self.sizes[path]:
                self.sizes[path] = size
                self._tailed[path] = starts[path], data
                tail.grown_at = tail.checked_at = now
            idle = now - tail.grown_at
            tail.due = now + TAIL_SHARE * idle
            if idle > WATCHED_SECS:
                del self._tails[path]
        if faults and len(faults) == len(due):
            raise faults[due[0]]
        for path in faults:  # one that may not be read holds up nothing else; a round has its size
            if path in self._tails:
                self._tails[path].due = now + max(ROUND_SECS, TAIL_SHARE * (now - self._tails[path].grown_at))

    def _read_tail(self, path: str, start: int) -> tuple[int, bytes, int] | OSError:
        """Return the size of a file, its bytes from a position on, and the number of requests; or what was wrong."""
        asked = BACK_BYTES + TAIL_BYTES
        try:
            data = self._client.read_range(path, start, asked)
            if 0 < len(data) < asked:
                return start + len(data), data, 1
        except FileNotFoundError as error:
            return error
        except OSError:  # the range is not there, perhaps
            data = b""
        try:
            return self._client.size_of(path) or 0, data, 2
        except OSError as error:
            return error

    # Directories

    def _check_directories(self, now: float) -> None:
        """List the directories of files that have stopped growing, and the new ones without files."""
        due = set()
        for path, tail in self._tails.items():
            if _is_check_due(tail, now):
                tail.checked_at = now
                due.add(path.rpartition("/")[0])
        for directory in sorted(due):
            self._list(directory, now)
        for directory, tail in list(self._new.items()):
            if now - tail.grown_at > WATCHED_SECS or self._has_watched(directory):
                del self._new[directory]
            elif _is_check_due(tail, now):
                tail.checked_at = now
                self._explore(directory, now)

    def _list_parents(self, now: float) -> None:
        """List directories that hold runs, at their rate."""
        self._parents_at = max(self._parents_at, now - ROUND_SECS)
        while self._parents_at <= now:
            if not self._parents:
                if now < self._parents_from:
                    return
                self._parents, self._parents_from = self._holders(), now + ROUND_SECS
                if not self._parents:
                    return
            before = self.listings
            self._list(self._parents.pop(0), now)
            self._parents_at += CHILDREN_SECS * (self.listings - before)

    def _holders(self) -> list[str]:
        """Return the directories that hold runs and are none, the shallowest first, within the limit."""
        runs = {path.rpartition("/")[0] for path in self._watched}
        holders = {self.root} - runs
        for run in runs:
            above = run.rpartition("/")[0]
            while above.startswith(self.root) and above not in holders and above not in runs:
                holders.add(above)
                above = above.rpartition("/")[0]
        left = MOST_CHILDREN_REQUESTS
        found = []
        for directory in sorted(holders, key=lambda path: (path.count("/"), path)):
            left -= 1 + len(self.entries.get(directory, ())) // NAMES_OF_A_REQUEST
            if left < 0:
                break
            found.append(directory)
        return found

    def _list(self, directory: str, now: float) -> None:
        """List one directory; what is new in it, too."""
        try:
            found, requests = self._client.children(directory)
        except FileNotFoundError:
            found, requests = [], 1
        self.listings += requests
        known = self.entries.get(directory, {})
        here = {each.path.rpartition("/")[2]: each for each in found}
        for name, entry in list(known.items()):
            if name not in here or (here[name].size is None) != entry.is_directory:
                self._remove_below(f"{directory}/{name}") if entry.is_directory else self._remove(f"{directory}/{name}")
        for name, each in here.items():
            is_new = name not in self.entries.get(directory, ())
            self._add(each, now)
            if is_new and each.size is None and self._skip_of(f"{each.path}/") is None:
                self._explore(each.path, now)
        if self.fresh is not None:
            self.fresh.add(directory)

    def _explore(self, directory: str, now: float) -> None:
        """List what is below a directory, as far as a few requests go."""
        after: str | None = ""
        first = self.listings
        while after is not None and self.listings - first < NEW_REQUESTS:
            page = self._client.page(directory, after)
            self.listings += page.requests
            for found in page.files:
                self._add(found, now)
            after = page.last
        if not self._has_watched(directory):
            self._new.setdefault(directory, _Tail(now, now, now))

    def _has_watched(self, directory: str) -> bool:
        place = bisect_left(self._watched, f"{directory}/")
        return place < len(self._watched) and self._watched[place].startswith(f"{directory}/")

    # What is known

    def _add(self, found: Found, now: float) -> None:
        path, is_directory = found.path, found.size is None
        if "//" in f"{path.removeprefix(self.root)}/":  # a store takes that for a name; no path leads there
            return
        if is_directory:
            self.entries.setdefault(path, {})
        elif self._is_watched(path.rpartition("/")[2]):
            self._note_size(found, now)
        while path != self.root:
            above, _, name = path.rpartition("/")
            known = self.entries.setdefault(above, {}).get(name)
            if known is not None and known.is_directory == is_directory:
                return
            entry = _entry(name, is_directory)
            self.entries[above][entry.name] = entry
            self._note_change(above)
            path, is_directory = above, True

    def _note_size(self, found: Found, now: float) -> None:
        path, before = found.path, self.sizes.get(found.path)
        if before == found.size:
            return
        assert found.size is not None
        self.sizes[path] = found.size
        idle = 0.0
        if before is None:
            insort(self._watched, path)
            idle = max(0.0, self._clock.wall() - found.written_at) if found.written_at is not None else 0.0
        if idle <= WATCHED_SECS:
            self._tails[path] = _Tail(now - idle, now + TAIL_SHARE * idle, now)

    def _forget_names(self, directory: str) -> None:
        """Forget the files of a directory that are not watched."""
        names = self.entries.get(directory)
        if names:
            self.entries[directory] = {
                name: entry for name, entry in names.items() if entry.is_directory or self._is_watched(name)
            }

    def _forget_directories(self, listed: set[str]) -> None:
        """Forget the directories that neither a full round has found, nor anything else meanwhile."""
        there = {self.root}
        for directory in {*listed, *self._new, *(path.rpartition("/")[0] for path in self._watched)}:
            while directory not in there:
                there.add(directory)
                directory = directory.rpartition("/")[0]
        for directory in self.entries.keys() - there:
            del self.entries[directory]
            self.versions.pop(directory, None)
            above, _, name = directory.rpartition("/")
            self.entries.get(above, {}).pop(name, None)
            self._note_change(above)

    def _note_change(self, directory: str) -> None:
        self.versions[directory] = next(_CHANGES)

    def _remove(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self.entries.get(directory, {}).pop(name, None)
        self._note_change(directory)
        self._tails.pop(path, None)
        if self.sizes.pop(path, None) is not None:
            del self._watched[bisect_left(self._watched, path)]

    def _remove_below(self, directory: str) -> None:
        """Forget a directory and what is in it."""
        for name, entry in list(self.entries.pop(directory, {}).items()):
            path = f"{directory}/{name}"
            self._remove_below(path) if entry.is_directory else self._remove(path)
        above, _, name = directory.rpartition("/")
        self.entries.get(above, {}).pop(name, None)
        self._note_change(above)
        self._new.pop(directory, None)


def _is_check_due(tail: _Tail, now: float) -> bool:
    idle = now - tail.grown_at
    return idle >= CHECK_AFTER_SECS and now - tail.checked_at >= max(CHECK_AFTER_SECS, CHECK_SHARE * idle)


def _in_parallel(call: Callable[[_T], _R], items: Sequence[_T]) -> Iterable[_R]:
    """Return what a call returns for each item, in their order. Its threads are daemons: a store that does not answer
    does not block the exit."""
    results: dict[int, _R] = {}
    numbers = iter(range(len(items)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            results[number] = call(items[number])

    threads = [
        threading.Thread(target=work, name="supervisor_tails", daemon=True) for _ in range(min(PARALLEL, len(items)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[number] for number in range(len(items))]
