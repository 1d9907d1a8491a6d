"""`ReadAhead`: the new ends of many remote files, fetched side by side for one reader that takes them in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from supervisor_core.events.window import FIRST_BYTES

PARALLEL_REQUESTS = 8
"""How many ranges are fetched, or wait to be taken, at once."""

RANGE_BYTES = FIRST_BYTES * (1 + 4 + 16 + 64)
"""How much of one file is fetched ahead at most: the first four pieces of a `Window`, which asks for more by itself."""


@dataclass(frozen=True, slots=True)
class Range:
    """What a reader will ask for first: bytes of a file."""

    path: str
    offset: int
    length: int


@dataclass(slots=True)
class _Job:
    range: Range
    done: threading.Event = field(default_factory=threading.Event)
    data: bytes = b""
    error: BaseException | None = None


class ReadAhead:
    """Fetches ranges in their order, at most `PARALLEL_REQUESTS` of them ahead of who takes them.

    Threads are daemons: a store that does not answer does not block the exit.

    Args:
        fetch: reads a range: path, length, offset. Called from several threads at once.
        ranges: one for each file, in the order in which they will be taken; cut to `RANGE_BYTES`.
    """

    def __init__(self, fetch: Callable[[str, int, int], bytes], ranges: Sequence[Range]) -> None:
        self._fetch = fetch
        self._jobs = [_Job(Range(each.path, each.offset, min(each.length, RANGE_BYTES))) for each in ranges]
        self._places = {job.range.path: place for place, job in enumerate(self._jobs)}
        self._slots = threading.Semaphore(PARALLEL_REQUESTS)
        self._lock = threading.Lock()  # guards what follows
        self._begun = self._passed = 0
        for _ in range(min(PARALLEL_REQUESTS, len(self._jobs))):
            threading.Thread(target=self._work, name="supervisor_read_ahead", daemon=True).start()

    def take(self, path: str, length: int, offset: int) -> bytes | None:
        """Return bytes of a file; None where they were not fetched ahead. Files are taken in their order: whatever is
        before this one is let go of.

        Raises:
            Exception: what fetching them has raised.
        """
        place = self._places.get(path)
        if place is None or not self._pass(place):
            return None
        job = self._jobs[place]
        start = offset - job.range.offset
        if start < 0 or start + length > job.range.length:
            return None
        job.done.wait()
        if job.error is not None:
            raise job.error
        return job.data[start : start + length]

    def close(self) -> None:
        """Let go of everything; begin no further request."""
        self._pass(len(self._jobs))

    def _pass(self, place: int) -> bool:
        """Let go of what is before a place; return whether the place itself is still held."""
        with self._lock:
            for job in self._jobs[self._passed : place]:
                job.data = b""
            freed = max(0, min(place, self._begun) - self._passed)
            is_held = place >= self._passed
            self._passed = max(self._passed, place)
            self._begun = max(self._begun, self._passed)
        if freed:
            self._slots.release(freed)
        if place == len(self._jobs):
            self._slots.release(PARALLEL_REQUESTS)  # for threads that wait for one
        return is_held

    def _work(self) -> None:
        while True:
            self._slots.acquire()
            with self._lock:
                if self._begun == len(self._jobs):
                    self._slots.release()
                    return
                job = self._jobs[self._begun]
                self._begun += 1
            try:
                job.data = self._fetch(job.range.path, job.range.length, job.range.offset)
            except BaseException as error:  # raised where it is taken
                job.error = error
            job.done.set()
