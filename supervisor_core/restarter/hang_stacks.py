"""`hang_stacks`: the stacks of a program that hangs, taken from outside, in a file that its launch record names.
`HangAlarm`: the two looks at a hang, and its end, as records of a stall."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from supervisor_core.engine.hangs import BUSY_SHARE, WAITING_SHARE
from supervisor_core.events.telemetry import StallRecord
from supervisor_core.process.outside import OutsideStacks, outside_stacks
from supervisor_core.process.runtime_directory import private_directory
from supervisor_core.process.stacks import MAIN_THREAD, Activity, Stacks, location, place_of_hang, user_line
from supervisor_core.process.stacks_file import MAGIC, MOST_BYTES, look_text, parse, read_stacks
from supervisor_core.restarter.hang import TRAINS, Hang
from supervisor_core.restarter.processes import descendants
from supervisor_core.storage.local import LOCAL, join, local_path

TIMEOUT_SECS = 5.0
"""py-spy takes a twentieth of a second; the restarter does not wait long for one that hangs itself."""


MOST_PROCESSES = 8
"""How many processes of a launch are asked for their stacks, until one has some."""


def hang_stacks(
    hang: Hang,
    read: Callable[[int], OutsideStacks] = lambda pid: outside_stacks(pid, timeout_secs=TIMEOUT_SECS),
    processes: Callable[[Hang], Sequence[int]] | None = None,
) -> tuple[str | None, str | None]:
    """Return the file with the stacks of a program that hangs; and why py-spy could not read them, and what to do.

    Those that py-spy can read are added to the file in memory that the program's session writes itself, or to one that
    is made for it. Otherwise it has what the session wrote.

    Args:
        read: returns the stacks of a process; replaced in tests, as what follows.
        processes: returns those that may hang, the most likely first. Default: `suspects`.
    """
    problem: str | None = None
    for pid in (processes or suspects)(hang):
        seen = read(pid)
        if seen.stacks:
            with suppress(OSError):
                path = Path(hang.stacks) if hang.stacks is not None else private_directory() / f"pid-{pid}.stacks"
                _append(path, pid, look_text(_title(hang, seen), time.time(), seen.stacks))
                return str(path), None
        problem = problem or seen.problem
    reading = None if hang.stacks is None else read_stacks(Path(hang.stacks))
    return hang.stacks if reading is not None and reading.looks else None, problem


def suspects(hang: Hang) -> tuple[int, ...]:
    """Return the processes that may hang, the most likely first.

    The process of a session is known. Without one, those that have an events file open come first: the program may be
    a shell, or a launcher of several processes.
    """
    if hang.session is not None or hang.root is None:
        return (hang.pid,)
    found = [each.pid for each in descendants(hang.root)]
    writers = [pid for pid in found if _has_events_open(pid)]
    return tuple(dict.fromkeys((*writers, hang.pid, *found)))[:MOST_PROCESSES]


def _has_events_open(pid: int) -> bool:
    with suppress(OSError):  # ended, or of another user
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if "tfevents" in os.readlink(f"/proc/{pid}/fd/{name}"):
                    return True
    return False


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
        reading = parse(self._data)
        self.pid = reading.pid
        """Of the process that they are of; None where unknown."""
        self.stacks: Stacks = reading.looks[-1].stacks if reading.looks else {}
        """Those of the newest look."""

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
        line = self.line
        return None if line is None else location(line)

    @property
    def thread(self) -> str:
        """The thread that this line is of."""
        return place_of_hang(self.stacks)[0]

    @property
    def line(self) -> str | None:
        """The same, as it is in the stack."""
        return place_of_hang(self.stacks)[1]

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


def _title(hang: Hang, seen: OutsideStacks) -> str:
    thread, line = place_of_hang(seen.stacks)
    if seen.holds_lock is not None:
        thread, line = seen.holds_lock, user_line(seen.stacks.get(seen.holds_lock, ()))
    where = None if line is None else f"{thread} at {location(line)}"
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


def runnable_secs(pid: int, root: str = "/proc") -> float | None:
    """Return for how long a process's main thread has run, or waited for a processor; None where unknown.

    Args:
        root: where the system's files are; another one in tests.
    """
    with suppress(OSError, ValueError):
        with open(f"{root}/{pid}/task/{pid}/schedstat", encoding="ascii") as file:
            ran, waited, _ = map(int, file.read().split())
        return (ran + waited) / 1e9 if ran else None
    return None


class HangAlarm:
    """What is seen of one hang of a launch after the other, and recorded of it.

    Args:
        ran: see `runnable_secs`; replaced in tests.
    """

    def __init__(self, ran: Callable[[int], float | None] = runnable_secs) -> None:
        self.acted: Hang | None = None
        """The hang for which the program was stopped."""
        self.stacks: KeptStacks | None = None
        """The newest."""
        self.seen_at: float | None = None
        """Monotonic time of the first look; None without a hang."""
        self.is_confirmed = False
        """Whether there was a second look."""
        self._ran = ran
        self._first: StallRecord | None = None
        self._looked: tuple[int, float, float | None] | None = None
        """Of the first look: process, monotonic time, `runnable_secs`."""

    def begins(self, hang: Hang) -> StallRecord:
        """Return the record of a hang that begins."""
        pid = None if self.stacks is None else self.stacks.pid
        self._looked = None if pid is None else (pid, time.monotonic(), self._ran(pid))
        self._first = self._record(hang, "begin")
        return self._first

    def lasts(self, hang: Hang) -> StallRecord:
        """Return the record of the second look at a hang, with what its main thread did since the first."""
        first: Stacks = {} if self._first is None else self._first.stacks
        record = self._record(hang, "lasts")
        if MAIN_THREAD not in first or MAIN_THREAD not in record.stacks:
            return record
        same = first[MAIN_THREAD] == record.stacks[MAIN_THREAD]
        return replace(record, same_frames=same, activity=self._activity())

    def ends(self) -> StallRecord | None:
        """Return the record of the end of the hang; None if none has begun."""
        first, self._first = self._first, None
        self.seen_at, self.is_confirmed = None, False
        return None if first is None else replace(first, state="end", stacks={})

    def _activity(self) -> Activity | None:
        if self._looked is None or self.stacks is None or self.stacks.pid != self._looked[0]:
            return None
        pid, looked_at, before = self._looked
        now, secs = self._ran(pid), time.monotonic() - looked_at
        if before is None or now is None or secs <= 0:
            return None
        share = (now - before) / secs
        return "busy" if share >= BUSY_SHARE else "waits" if share <= WAITING_SHARE else None

    def _record(self, hang: Hang, state: Literal["begin", "lasts"]) -> StallRecord:
        kept = self.stacks
        return StallRecord(
            session=hang.session or "",
            state=state,
            phase=hang.phase or TRAINS,
            since=time.time() - hang.secs,
            step=hang.step,
            secs=hang.secs,
            timeout_secs=hang.hang_timeout_secs,
            thread=MAIN_THREAD if kept is None else kept.thread,
            location=None if kept is None else kept.line,
            stacks={} if kept is None else kept.stacks,
        )


KEPT_FILES = 20
"""Files of stacks in a logdir: those of the newest sessions that hung."""


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
