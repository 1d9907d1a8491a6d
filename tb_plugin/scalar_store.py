"""`ScalarStore`: the scalars of the runs that somebody looks at, each run read when it is first asked for."""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.events.columns import Columns, ColumnStore

if TYPE_CHECKING:
    from supervisor_core.events.index import RunIndex

_LOG = logging.getLogger("supervisor_core")

_COLUMN_BYTES = 600
"""What a tag of a file takes beside its points."""


class NotRead(Exception):  # noqa: N818 - a state, no fault
    """The run's scalars are not there yet; the text says why, if that is known."""

    def __init__(self, problem: str | None) -> None:
        super().__init__(problem or "being read")
        self.problem = problem


class RunScalars:
    """The scalars of one run. Changed by the store's thread only; what it has handed out never changes.

    Args:
        directory: the run's.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.bytes = 0
        """What it holds."""
        self.is_read = False
        """Whether it has been read once."""
        self.problem: str | None = None
        """Why it could not be read the last time."""
        self.is_wanted = False
        """Whether the store's thread is to read it."""
        self.read_at = -math.inf
        """When the store's thread began to read it the last time that this succeeded; by the monotonic clock."""
        self.fresh_until = -math.inf
        """The time until which what was read counts as what is there."""
        self._source: RunIndex | None = None
        self._columns = ColumnStore()
        self._lock = threading.Lock()

    def refresh(self, source: Callable[[str], RunIndex]) -> None:
        """Read what is new; the source is made once, and again after a first reading that failed."""
        if self._source is None or not self.is_read:
            self._source, self._columns = source(self.directory), ColumnStore()
        for chunk in self._source.pieces():
            with self._lock:
                self._columns.add(chunk)
        self.bytes = self._columns.bytes_held + _COLUMN_BYTES * self._columns.columns_held

    def tags(self) -> list[dict[str, Any]]:
        """Return the tags by name, with how much each holds and where it stands, all files taken together."""
        with self._lock:
            found = {tag: list(self._columns.by_file(tag).values()) for tag in self._columns.tags}
        return [
            {
                "tag": tag,
                "points": sum(map(len, files)),
                "first_step": int(files[0].steps[0]),
                "last_step": int(files[-1].steps[-1]),
                "last_value": float(files[-1].values[-1]),
            }
            for tag, files in found.items()
        ]

    def names(self) -> list[str]:
        """Return the names of the tags, sorted."""
        with self._lock:
            return list(self._columns.tags)

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
        self, source: Callable[[str], RunIndex], max_bytes: int, fresh_secs: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._fresh_secs = fresh_secs
        self._clock = clock
        self._changed = threading.Condition()
        self._runs: OrderedDict[str, RunScalars] = OrderedDict()
        self._wanted: SimpleQueue[RunScalars | None] = SimpleQueue()
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
            run = self._runs.setdefault(directory, RunScalars(directory))
            self._runs.move_to_end(directory)
            if self._clock.monotonic() >= run.fresh_until and not run.is_wanted:
                run.is_wanted = True
                self._wanted.put(run)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name="supervisor-scalars", daemon=True)
                    self._thread.start()
            self._changed.wait_for(lambda: not run.is_wanted, wait_secs)
            if not run.is_read:
                raise NotRead(run.problem)
            return run

    def close(self) -> None:
        """End the thread after what it is reading now."""
        with self._changed:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._wanted.put(None)
            thread.join()

    def _serve(self) -> None:
        while (run := self._wanted.get()) is not None:
            problem, began = None, self._clock.monotonic()
            try:
                run.refresh(self._source)
            except Exception as error:  # clients of object stores raise what they like; it is tried again when asked
                _LOG.warning("The scalars of %s could not be read: %r", run.directory, error)
                problem = f"The scalars of {run.directory} could not be read: {error!r}."
            with self._changed:
                run.is_read, run.problem, run.is_wanted = run.is_read or problem is None, problem, False
                run.read_at = began if problem is None else run.read_at
                run.fresh_until = self._clock.monotonic() + self._fresh_secs
                self._make_room()
                self._changed.notify_all()

    def _make_room(self) -> None:
        held = sum(run.bytes for run in self._runs.values())
        for directory, run in list(self._runs.items())[:-1]:
            if held <= self._max_bytes:
                return
            if not run.is_wanted:
                held -= run.bytes
                del self._runs[directory]
