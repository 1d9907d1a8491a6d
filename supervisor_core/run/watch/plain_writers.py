"""`PlainWriters`: whether the programs that write runs without telemetry still run.

The name of an events file has host and, of most writers, process. A process of that id that began after the file is
another one: ids are used again. Where the name has none (TensorFlow 1, tensorboardX), or that process is gone (it may
be of a container, which has ids of its own), the writer is the process that has the file open for writing. No writer is
seen that opens the file for each flush (PyTorch without TensorFlow) in a container of this host's name: the caller
believes a file that grows, and not this. Nor does a process that runs, and has not the file open, prove that the run
goes on: a notebook may have closed it, a container may have used that id, and a copy has its original's.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Collection
from typing import NamedTuple

from supervisor_core.events.chunk_builder import created_at, writer_of
from supervisor_core.process.identity import is_running, started_at
from supervisor_core.process.open_files import OpenFiles
from supervisor_core.storage.local import local_path

CLOCK_SET_SECS = 60.0
"""A wall clock may have been set by this much since a process began."""


class RunWriter(NamedTuple):
    """Who writes a run now."""

    pid: int | None = None
    """A process that runs and writes it; None where none is known."""
    is_over: bool = False
    """Whether all processes that have written it are known to be over."""

    @property
    def is_alive(self) -> bool | None:
        """Whether a process writes the run; None if unknown."""
        return False if self.is_over else self.pid is not None or None


class PlainWriters:
    """Looks for the writers of runs, again and again. Used by one thread at a time."""

    def __init__(self) -> None:
        self._open: OpenFiles | None = None

    def clear(self) -> None:
        """Look again from now on."""
        self._open = None

    def of(self, paths: Collection[str]) -> RunWriter:
        """Return who writes the newest session of a run.

        Args:
            paths: its events files.
        """
        found = [self._of_file(path) for path in paths]
        alive = next((writer for writer in found if writer.pid is not None), RunWriter())
        return alive if alive.pid else RunWriter(is_over=bool(found) and all(writer.is_over for writer in found))

    def holder(self, path: str) -> int | None:
        """Return a process that has a file open for writing; None if none is known to."""
        local = local_path(path)
        if local is None:
            return None
        self._open = self._open or OpenFiles("tfevents")
        return self._open.holder(local)

    def _of_file(self, path: str) -> RunWriter:
        named, local, host = writer_of(path), local_path(path), socket.gethostname()
        if not (named[0] == host if named else re.search(rf"tfevents\.\d+\.{re.escape(host)}(\.|$)", path)):
            return RunWriter()
        pid = 0 if named is None else int(named[1])
        runs = 0 < pid < 1 << 31 and is_running(pid)
        began, created = started_at(pid) if runs else None, created_at(path)
        if began is not None and created is not None and began > created + CLOCK_SET_SECS:
            runs = False  # another process, of the same id
        if runs and began is not None:
            return RunWriter(pid)
        holder = self.holder(path)
        if holder is not None:
            return RunWriter(holder)
        if named is not None:
            return RunWriter(is_over=not runs)
        return RunWriter(is_over=local is not None and self._open is not None and self._open.is_complete_for(local))
