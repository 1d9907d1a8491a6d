"""`StallStacks`: where the stacks of a session go besides its events file, which may be on what hangs.

In memory there is ``<session id>.stacks`` (`supervisor_core.process.stacks_file`), with `DeadManTimer` for the time in
which Python cannot run. In the logdir there is ``supervisor-stacks.<session id>.txt``, the same text, written by a
thread of its own; it is for people, and for who has only the logdir.
"""

from __future__ import annotations

import glob
import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import SupervisorError
from supervisor_core.base.log import printable
from supervisor_core.process.dead_man import DeadManTimer
from supervisor_core.process.stacks import Stacks
from supervisor_core.process.stacks_file import StacksFile, StacksLook, look_text, stacks_path
from supervisor_core.storage.local import LOCAL, join, local_path

_LOG = logging.getLogger("supervisor_core")

LEAST_SECS, MOST_SECS = 10.0, 60.0
"""The dead-man timer fires when the monitor has not run for the hang timeout, within these bounds."""
KEPT_LOOKS = 10
LOOK_BYTES = 100_000
"""Of a look in the logdir; with `KEPT_LOOKS` this bounds the file to 1 MB."""
KEPT_FILES = 20
"""Files of stacks in a logdir: those of the newest sessions that stalled."""


class StallStacks:
    """The files of one session. Nothing here raises: what cannot be written is logged once.

    `open`, `by_timer` and `add` are called by one thread, `arm` by any. Before `open` and after `close` they do nothing
    but for the file in the logdir.

    Args:
        session_id: the session's id.
        logdir: for the file in it; None or a remote one: there is no such file.
        clock: replaced in tests.
        dump_blocked: see `Options.dump_blocked_stacks`.
    """

    def __init__(
        self, session_id: str, logdir: str | None, clock: Clock = SYSTEM_CLOCK, *, dump_blocked: bool = True
    ) -> None:
        self._session_id = session_id
        self._clock = clock
        self._dump_blocked = dump_blocked
        self._pid = os.getpid()
        self._file: StacksFile | None = None
        self._timer: DeadManTimer | None = None
        self._has_failed = False
        local = None if logdir is None else local_path(logdir)
        self._copy = None if local is None else _LogdirCopy(local, session_id)

    def open(self, directory: Path | None) -> None:
        """Create the file in memory, and the timer if there is to be one.

        Args:
            directory: see `supervisor_core.process.runtime_directory`; None: neither.
        """
        if directory is None:
            return
        with self._logging_failure():
            self._file = StacksFile(stacks_path(directory, self._session_id), self._session_id)
            if self._dump_blocked:
                self._timer = DeadManTimer(self._file.descriptor)
        self.arm(None)

    def arm(self, secs: float | None) -> None:
        """Have the main thread's stack written if this is not called again for so long; None: for `MOST_SECS`."""
        timer = self._timer
        if timer is not None:
            with self._logging_failure():
                timer.arm(MOST_SECS if secs is None else max(LEAST_SECS, min(secs, MOST_SECS)))

    def by_timer(self) -> StacksLook | None:
        """Return what the timer has written since the last call; None if it did not fire."""
        if self._file is not None:
            with self._logging_failure():
                return self._file.by_timer()
        return None

    def add(self, title: str, stacks: Stacks) -> None:
        """Write the stacks to both places. Does not wait for the logdir."""
        text = look_text(title, self._clock.wall(), stacks)
        if self._file is not None:
            with self._logging_failure():
                self._file.add(text)
        if self._copy is not None:
            self._copy.add(text)

    def close(self) -> None:
        """Remove the timer and the file in memory. In a forked child they are the parent's, and stay."""
        file, self._file = self._file, None
        timer, self._timer = self._timer, None
        if self._pid != os.getpid():
            return
        if timer is not None:
            timer.close()
        if file is not None:
            file.close(remove=True)

    @contextmanager
    def _logging_failure(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            if not self._has_failed:
                _LOG.warning("A hang of this session may leave no stacks in memory: %s", printable(str(error)))
            self._has_failed = True


class _LogdirCopy:
    """The newest looks in a file of the logdir. While one is being written, later ones wait for it in memory."""

    def __init__(self, directory: str, session_id: str) -> None:
        self._directory = directory
        self._path = path_in_logdir(directory, session_id)
        self._lock = threading.Lock()
        self._looks: deque[bytes] = deque(maxlen=KEPT_LOOKS)
        self._is_new = False
        self._is_writing = False
        self._has_failed = False

    def add(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        with self._lock:
            self._looks.append(data if len(data) <= LOOK_BYTES else data[: LOOK_BYTES - 6] + b"\n...\n\n")
            self._is_new = True
            if self._is_writing:
                return
            self._is_writing = True
        try:
            threading.Thread(target=self._write, name="supervisor_stacks", daemon=True).start()
        except RuntimeError:  # no more threads: they are in the events file
            with self._lock:
                self._is_writing = False

    def _write(self) -> None:
        while True:
            with self._lock:
                if not self._is_new:
                    self._is_writing = False
                    return
                self._is_new = False
                data = b"".join(self._looks)
            try:
                LOCAL.replace(self._path, data)
                remove_old(self._directory)
            except (OSError, SupervisorError) as error:
                if not self._has_failed:
                    self._has_failed = True
                    _LOG.warning("The stacks of a stall cannot be written to %s: %s", self._path, error)


def path_in_logdir(directory: str, session_id: str) -> str:
    """Return the file for the stacks of a session in a logdir."""
    return join(directory, f"supervisor-stacks.{session_id}.txt")


def remove_old(directory: str) -> None:
    """Remove the files of stacks in a logdir but for the newest `KEPT_FILES`. Raises nothing."""
    found = glob.glob(path_in_logdir(glob.escape(directory), "*"))
    if len(found) > KEPT_FILES:
        with suppress(OSError):
            for path in sorted(found, key=os.path.getmtime)[:-KEPT_FILES]:
                os.unlink(path)
