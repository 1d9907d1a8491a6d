"""`TaskFile`: one process's heartbeat file in the shared logdir."""

from __future__ import annotations

import contextlib
import os

from supervisor_core.errors import SupervisorError
from supervisor_core.storage.local import Filesystem, filesystem_for, refuse_link
from supervisor_core.supervision.task_record import MAX_BYTES, TaskRecord, decode, encode, file_name

TASKS_DIRECTORY = ".supervisor.tasks"
"""Where in the logdir the cluster's processes keep their heartbeats."""


def read_record(filesystem: Filesystem, path: str) -> TaskRecord:
    """Return what a file says; one that is too long for any of ours is not read.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it says nothing that can be understood, or bears another task's name; says why.
    """
    with filesystem.open(path) as reader:
        if reader.size > MAX_BYTES:
            raise ValueError(f"it has {reader.size:,} bytes, more than {MAX_BYTES:,}")
        record = decode(reader.read_at(0, reader.size))
    if file_name(record.task) != os.path.basename(path):
        raise ValueError(f"it is named like another task's: this is {record.task!r:.80}")
    return record


class _TakenOverError(SupervisorError):
    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session


class TaskFile:
    """The file of one task. For one thread's use.

    Args:
        logdir: the run's directory, shared with the chief.
        task: the process's name in the cluster.
        session: the process's session.
        filesystem: where to write. Default: what the logdir's name says.
    """

    def __init__(self, logdir: str, task: str, session: str, *, filesystem: Filesystem | None = None) -> None:
        self.path = os.path.join(logdir, TASKS_DIRECTORY, file_name(task))
        self._session = session
        self._filesystem = filesystem
        self._replaced: str | None = None
        self._has_written = False

    def write(self, record: TaskRecord) -> str | None:
        """Put a record in the file's place; return the session that has taken the file over, and write nothing then.

        Of two living processes the one that wrote first gives way: each remembers whom it replaced, so that no two
        machines' clocks are compared.

        Raises:
            OSError: if it cannot be written.
        """
        filesystem = self._open()
        other = self._other_session(filesystem)
        if self._is_taken_over(other):
            return other
        if not self._has_written:
            filesystem.make_directory(os.path.dirname(self.path))
            refuse_link(os.path.dirname(self.path))
            self._remove_leftovers(filesystem)
            self._replaced = other
        try:
            refuse_link(os.path.dirname(self.path))
            filesystem.replace(self.path, encode(record), self._check)
        except FileNotFoundError:  # the logdir was cleared under a living process
            filesystem.make_directory(os.path.dirname(self.path))
            filesystem.replace(self.path, encode(record), self._check)
        except _TakenOverError as taken:
            return taken.session
        self._has_written = True
        return None

    def _is_taken_over(self, other: str | None) -> bool:
        return self._has_written and other is not None and other != self._replaced

    def _check(self) -> None:
        """Look once more immediately before the file is replaced: the process may have been suspended meanwhile."""
        other = self._other_session(self._open())
        if other is not None and self._is_taken_over(other):
            raise _TakenOverError(other)

    def _open(self) -> Filesystem:
        if self._filesystem is None:
            self._filesystem, self.path = filesystem_for(self.path)
        return self._filesystem

    def _other_session(self, filesystem: Filesystem) -> str | None:
        try:
            session = read_record(filesystem, self.path).session
        except (OSError, ValueError):  # missing, or nobody's that we know: ours replaces it
            return None
        return None if session == self._session else session

    def _remove_leftovers(self, filesystem: Filesystem) -> None:
        """Delete what processes of this task left that were killed while they wrote."""
        directory, name = os.path.split(self.path)
        with contextlib.suppress(OSError):  # they are in nobody's way
            for found in filesystem.list_names(directory):
                if found.startswith(f"{name}.tmp"):
                    filesystem.remove(os.path.join(directory, found))
