"""`ScalarStore`: the scalars of the runs that somebody looks at, each run read when it is first asked for."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.events.chunk import Chunk
from supervisor_core.events.columns import Columns, ColumnStore

_LOG = logging.getLogger("supervisor_core")

_POINT_BYTES = 48
"""Three columns, and as much again as room to grow."""
_COLUMN_BYTES = 600
"""What a tag of a file takes beside its points."""


class Source(Protocol):
    """Reads one run's events files; `RunIndex` is one."""

    def pieces(self) -> Iterable[Chunk]:
        """Yield what is new in each file, a large one piece by piece."""


class NotRead(Exception):  # noqa: N818 - a state, no fault
    """The run's scalars are not there yet; the text says why, if that is known."""

    def __init__(self, problem: str | None) -> None:
        super().__init__(problem or "being read")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class TagFacts:
    """What a tag holds, all files taken together."""

    points: int
    first_step: int
    last_step: int
    last_value: float


class RunScalars:
    """The scalars of one run. Changed by the store's thread only; what it has handed out never changes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._columns = ColumnStore()
        self._lock = threading.Lock()
        self.bytes = 0
        """What it holds at most."""

    def refresh(self) -> None:
        """Read what is new."""
        for chunk in self._source.pieces():
            with self._lock:
                self._columns.add(chunk)
        self.bytes = _POINT_BYTES * len(self._columns) + _COLUMN_BYTES * self._columns.columns_held

    def tags(self) -> Mapping[str, TagFacts]:
        """Return what there is, by tag."""
        with self._lock:
            found = {tag: list(self._columns.by_file(tag).values()) for tag in self._columns.tags}
        return {
            tag: TagFacts(
                points=sum(map(len, files)),
                first_step=int(files[0].steps[0]),
                last_step=int(files[-1].steps[-1]),
                last_value=float(files[-1].values[-1]),
            )
            for tag, files in found.items()
        }

    def points(self, tag: str) -> Mapping[str, Columns]:
        """Return a tag's points by file, in the files' order; empty where there are none."""
        with self._lock:
            return self._columns.by_file(tag)


class ScalarStore:
    """Reads in one daemon thread of its own, so that no request waits for a disk longer than it wants to.

    Args:
        source: makes what reads a run's directory.
        max_bytes: how much to hold; the runs asked for longest ago go first, the latest stays whatever its size.
        fresh_secs: how long what was read is taken for what is there.
        clock: measures its age.
    """

    def __init__(
        self, source: Callable[[str], Source], max_bytes: int, fresh_secs: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._fresh_secs = fresh_secs
        self._clock = clock
        self._changed = threading.Condition()
        self._runs: OrderedDict[str, _Entry] = OrderedDict()
        self._wanted: SimpleQueue[str | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, directory: str, wait_secs: float) -> RunScalars:
        """Return a run's scalars, as they were not longer ago than they count as fresh; any thread may ask.

        Args:
            directory: the run's.
            wait_secs: how long to wait for the thread. What was read before is returned then.

        Raises:
            NotRead: if the run has not been read once in that time.
        """
        with self._changed:
            entry = self._runs.setdefault(directory, _Entry())
            self._runs.move_to_end(directory)
            if self._clock.monotonic() >= entry.fresh_until and not entry.is_wanted:
                entry.is_wanted = True
                self._wanted.put(directory)
                self._run_thread()
            self._changed.wait_for(lambda: not entry.is_wanted, wait_secs)
            if entry.scalars is None:
                raise NotRead(entry.problem)
            return entry.scalars

    def close(self) -> None:
        """End the thread after what it is reading now."""
        with self._changed:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._wanted.put(None)
            thread.join()

    def _run_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="supervisor-scalars", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while (directory := self._wanted.get()) is not None:
            with self._changed:
                entry = self._runs.get(directory)
            if entry is None:
                continue
            scalars, problem = entry.scalars, None
            try:
                if scalars is None:
                    scalars = RunScalars(self._source(directory))
                scalars.refresh()
            except Exception as error:  # clients of object stores raise what they like; it is tried again when asked
                _LOG.warning("The scalars of %s could not be read: %r", directory, error)
                problem = f"The scalars of {directory} could not be read: {error!r}."
                scalars = entry.scalars
            with self._changed:
                entry.scalars, entry.problem, entry.is_wanted = scalars, problem, False
                entry.fresh_until = self._clock.monotonic() + self._fresh_secs
                self._make_room()
                self._changed.notify_all()

    def _make_room(self) -> None:
        held = sum(entry.scalars.bytes for entry in self._runs.values() if entry.scalars is not None)
        for directory in list(self._runs)[:-1]:
            if held <= self._max_bytes:
                return
            entry = self._runs[directory]
            if not entry.is_wanted:
                held -= entry.scalars.bytes if entry.scalars is not None else 0
                del self._runs[directory]


@dataclass(slots=True)
class _Entry:
    scalars: RunScalars | None = None
    problem: str | None = None
    is_wanted: bool = False
    fresh_until: float = float("-inf")
