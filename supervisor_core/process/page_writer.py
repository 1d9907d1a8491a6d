"""`ProgressPage`: writes a session's progress page, see `progress_page` for what that is.

The training thread stores into `ProgressPage.counts` and `ProgressPage.times`; the monitor writes the fields of its
tick; whoever changes the phase, the rest.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
import weakref
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor_core.base.clock import SYSTEM_CLOCK, boot_secs
from supervisor_core.base.systems import after_fork_in_child
from supervisor_core.process import progress_page as layout
from supervisor_core.process.identity import boot_id, pid_namespace

_PAGES: weakref.WeakSet[ProgressPage] = weakref.WeakSet()


class ProgressPage:
    """The page of one session. Without a file (see `create`) it is plain memory of the process.

    The training thread stores into `counts` and `times` by itself, at the places `STEPS` and `LAST_PROGRESS`: fetch the
    two from the page for each store, since a forked child's page gets others.
    """

    __slots__ = ("__weakref__", "_lock", "_process", "_selector", "_state", "counts", "path", "times")

    def __init__(self) -> None:
        self.counts: memoryview[int]
        """The page as signed integers of 8 bytes."""
        self.times: memoryview[float]
        """The same bytes as floats."""
        self._map(memoryview(bytearray(layout.PAGE_BYTES)))
        self.path: Path | None = None
        """The file; None without one, after `close`, and in a forked child."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._selector = 0
        self._state = layout.WrittenState()

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        session_id: str,
        pid: int | None = None,
        attempt: int = 0,
        started_at: float | None = None,
        started_boot_secs: float | None = None,
        logdir: str | None = None,
    ) -> ProgressPage:
        """Create the page ``<session id>.page`` in a directory, readable by its user alone.

        Args:
            pid: its process. Default: this one.
            attempt: the number of the session in its run; 0 where unknown.
            started_at: when the session started, wall time. Default: now.
            started_boot_secs: the same by `supervisor_core.base.clock.boot_secs`. Default: now.
            logdir: the run's directory, for whoever finds the page.

        Raises:
            OSError: if it cannot be created, for example because the memory is full.
        """
        if sys.byteorder != "little":
            raise OSError("progress pages need a little-endian machine")
        page, path = cls(), layout.page_in(directory, session_id)
        image = layout.new_page(
            pid=os.getpid() if pid is None else pid,
            attempt=attempt,
            started_at=time.time() if started_at is None else started_at,
            started_boot_secs=boot_secs(SYSTEM_CLOCK) if started_boot_secs is None else started_boot_secs,
            texts={
                "session": session_id,
                "boot": boot_id() or "",
                "pids": pid_namespace() or "",
                "stacks": str(directory / f"{session_id}.stacks"),
                "logdir": logdir or "",
            },
        )
        page._map(memoryview(_new_file(path, image)))
        page.path = path
        page._write()
        _PAGES.add(page)
        return page

    def take_over(self, other: ProgressPage) -> None:
        """Continue with the progress that another page of this session has."""
        with self._lock:
            self._state = other._state
            counted = slice(layout.STEPS, layout.TICK_PROCESS + 1)
            self.counts[counted] = other.counts[counted]
            self._write()

    def tick(self, *, at: float, boot_secs: float, main_thread_secs: float) -> None:
        """Record that the monitor runs: called by its thread only, about once a second.

        Args:
            at: monotonic seconds.
            boot_secs: the same by the clock that counts suspended time as well.
            main_thread_secs: CPU seconds that the main thread has used.
        """
        times = self.times
        times[layout.TICK_MAIN_THREAD], times[layout.TICK_PROCESS] = main_thread_secs, time.process_time()
        times[layout.TICK], times[layout.TICK_BOOT] = at, boot_secs
        self.counts[layout.TICKS] += 1

    def step_is(self, first_step: int, stride: int) -> None:
        """Set how the global step follows from the steps of this session: ``first_step + stride * steps``."""
        state = self._state
        if state.first_step != first_step or state.stride != stride:  # rarely: each reading of the step asks
            self.update(first_step=first_step, stride=stride)

    def update(self, **changes: Any) -> None:
        """Change fields of `WrittenState`."""
        with self._lock:
            before, self._state = self._state, replace(self._state, **changes)
            if self._state != before:
                self._write()

    def close(self, *, remove: bool = True) -> None:
        """Mark the session as ended and give up the file; further changes go nowhere. Closing twice changes nothing.

        Args:
            remove: delete the file, which is not needed where a record says how the session ended.
        """
        self.update(ended=True)
        path, self.path = self.path, None
        _PAGES.discard(self)
        self._map(memoryview(bytearray(layout.PAGE_BYTES)))  # never closed: another thread may be at a store
        if path is not None and remove and self._process == os.getpid():
            with suppress(OSError):  # gone, or the directory is: removed with the stale ones
                os.unlink(path)

    def _write(self) -> None:
        """Write the state into the slot that is not in use, then switch to it with one store: a kill at any moment
        leaves one that is whole."""
        errors = self._state.encode_errors()
        self.counts.cast("B")[layout.ERRORS_AT : layout.ERRORS_AT + len(errors)] = errors
        data = self._state.encode(zlib.crc32(errors))
        self._selector = (self._selector + 1) & 0x7FFFFFFF
        start = layout.SLOTS[self._selector & 1]
        self.counts.cast("B")[start : start + layout.SLOT.size] = data
        self.counts.cast("B").cast("Q")[layout.SELECTOR] = zlib.crc32(data) << 32 | self._selector

    def _map(self, memory: memoryview[int]) -> None:
        self.counts, self.times = memory.cast("q"), memory.cast("d")

    def _leave_to_parent(self) -> None:
        """Write to memory of its own from now on, in a forked child."""
        self._lock = threading.Lock()
        self.path = None
        self._map(memoryview(bytearray(layout.PAGE_BYTES)))


def _new_file(path: Path, image: bytes) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        # Written, not only made that long: a store into memory that the file system cannot provide is a SIGBUS.
        if os.write(fd, image) != layout.PAGE_BYTES:
            raise OSError(f"{path} could not be written in full")
        return mmap.mmap(fd, layout.PAGE_BYTES)
    except BaseException:
        with suppress(OSError):  # the first error is raised
            os.unlink(path)
        raise
    finally:
        os.close(fd)


def _after_fork() -> None:
    for page in list(_PAGES):
        page._leave_to_parent()
    _PAGES.clear()


after_fork_in_child(_after_fork)
