"""`hang_stacks`: the stacks of a program that hangs, taken from outside, in a file that its launch record names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from supervisor_core.engine.stall_stacks import path_in_logdir, remove_old
from supervisor_core.process.outside import OutsideStacks, outside_stacks
from supervisor_core.process.runtime_directory import private_directory
from supervisor_core.process.stacks import MAIN_THREAD, Stacks, location, user_line
from supervisor_core.process.stacks_file import MAGIC, MOST_BYTES, look_text, parse, read_stacks
from supervisor_core.restarter.hang import Hang
from supervisor_core.storage.local import LOCAL, local_path

TIMEOUT_SECS = 5.0
"""py-spy takes a twentieth of a second; the restarter does not wait long for one that hangs itself."""


def hang_stacks(
    hang: Hang, read: Callable[[int], OutsideStacks] = lambda pid: outside_stacks(pid, timeout_secs=TIMEOUT_SECS)
) -> str | None:
    """Return the file with the stacks of a program that hangs; None if there are none.

    Those that py-spy can read are added to the file in memory that the program's session writes itself, or to one that
    is made for it. Otherwise it has what the session wrote.

    Args:
        hang: the hang.
        read: returns the stacks of a process; replaced in tests.
    """
    seen = read(hang.pid)
    if seen.stacks:
        with suppress(OSError):
            path = Path(hang.stacks) if hang.stacks is not None else private_directory() / f"pid-{hang.pid}.stacks"
            _append(path, hang.pid, look_text(_title(hang, seen), time.time(), seen.stacks))
            return str(path)
    reading = None if hang.stacks is None else read_stacks(Path(hang.stacks))
    return hang.stacks if reading is not None and reading.looks else None


class KeptStacks:
    """The newest stacks of a hang. The file in memory goes with its session, so it is read at once, and copied beside
    the one that the session itself keeps in the logdir.

    Args:
        path: the file in memory.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._data = b""
        with suppress(OSError), open(path, "rb") as file:
            self._data = file.read(2 * MOST_BYTES)
        self._copy: str | None = None

    @property
    def path(self) -> str:
        """The copy in the logdir, once it is there; else the file in memory."""
        return self._copy or self._path

    @property
    def text(self) -> str:
        """Where they are, for people."""
        return self._copy or f"{self._path} (in memory, until the next session begins)"

    @property
    def location(self) -> str | None:
        """The line of the program in the newest look; None where there is none."""
        looks = parse(self._data).looks
        line = user_line(looks[-1].stacks.get(MAIN_THREAD, ())) if looks else None
        return None if line is None else location(line)

    def copy_to(self, logdir: str) -> None:
        """Copy them into a logdir, which may hang; not into a remote one.

        Raises:
            OSError: if that cannot be written.
        """
        local = local_path(logdir)
        if local is not None and self._data:
            copy = path_in_logdir(local, Path(self._path).stem)
            LOCAL.replace(copy, self._data)
            remove_old(local)
            self._copy = copy


def _whereabouts(stacks: Stacks, thread: str = MAIN_THREAD) -> str | None:
    """Return where a thread is, for people: ``MainThread at train.py:88 in step``; None where unknown."""
    line = user_line(stacks.get(thread, ()))
    return None if line is None else f"{thread} at {location(line)}"


def _title(hang: Hang, seen: OutsideStacks) -> str:
    where = _whereabouts(seen.stacks, seen.holds_lock or MAIN_THREAD)
    holder = "" if seen.holds_lock is None else f"; {seen.holds_lock} holds the interpreter's lock"
    return f"from outside, by py-spy: {hang.text}{'' if where is None else f'; {where}'}{holder}"


def _append(path: Path, pid: int, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if os.fstat(descriptor).st_size > MOST_BYTES:
            file.truncate(0)
        if not os.fstat(descriptor).st_size:
            text = f"{MAGIC}\npid {pid}\n\n{text}"
        file.write(text.encode("utf-8", "backslashreplace"))
