"""``<session id>.stacks``: the newest stacks of a session, in memory, to be read while the session or its disk hangs.

UTF-8 text:

    supervisor stacks 1
    session <id>
    pid <pid>

    == <wall time in seconds> <title>                    a look by the session itself: all threads
    Thread 0x0000000000000000 [MainThread] (most recent call first):
      File "/home/me/train.py", line 88 in main
    ...
    Stack (most recent call first):                      by `DeadManTimer`, while Python cannot run: the main thread
      File "/home/me/train.py", line 88 in main

Looks are appended, by the timer at any moment. Before the next one after `MOST_BYTES` all are dropped.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from supervisor_core.base.systems import CLOSE_ON_EXEC, NO_FOLLOW
from supervisor_core.process.runtime_directory import read_regular
from supervisor_core.process.stacks import MAIN_THREAD, MAX_FRAMES, Stacks

SUFFIX = ".stacks"
MAGIC = "supervisor stacks 1"
MOST_BYTES = 1 << 20
MOST_LOOKS = 100
"""The newest are read."""
MOST_THREADS = 1000
MOST_LETTERS = 4096
"""Of a line; the rest is cut."""
BY_TIMER_TITLE = "Python could not run"

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_FOLLOW | CLOSE_ON_EXEC
_TITLE = re.compile(r"^== (?P<at>\d{1,12}\.\d{3}) (?P<title>.*)$")
_BY_TIMER = re.compile(r"^Stack \(most recent call first\):$")
_THREAD = re.compile(r"^Thread 0x[0-9a-f]{1,16} \[(?P<name>[^\]]*)\] \(most recent call first\):$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d{1,9}|\?\?\?) in (?P<function>.*)$')


@dataclass(frozen=True, kw_only=True)
class StacksLook:
    """Stacks at one moment."""

    title: str
    at: float | None
    """Wall time; None of the timer's, which writes none."""
    stacks: Stacks
    """Name of the thread -> its frames, outermost first."""

    @property
    def by_timer(self) -> bool:
        """Whether `DeadManTimer` took it, since Python could not run: it has the main thread only."""
        return self.at is None


@dataclass(frozen=True, kw_only=True)
class StacksReading:
    """What a file of stacks holds."""

    session: str | None = None
    pid: int | None = None
    looks: tuple[StacksLook, ...] = field(default=())
    """Oldest first."""


class StacksFile:
    """The file of one session, for its own process. Thread-safe: one may close it while another writes.

    Args:
        path: where; what is there is replaced.

    Raises:
        OSError: if it cannot be created.
    """

    def __init__(self, path: Path, session: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._head = f"{MAGIC}\nsession {session}\npid {os.getpid()}\n\n".encode()
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self.descriptor = os.open(path, _FLAGS | os.O_EXCL, 0o600)
        """It appends."""
        try:
            self._seen = os.write(self.descriptor, self._head)
        except OSError:
            os.close(self.descriptor)
            raise

    def add(self, text: str) -> None:
        """Append a look, as `look_text` returns it.

        Raises:
            OSError: if there is no room.
        """
        with self._lock:
            if self._size() > MOST_BYTES:
                os.ftruncate(self.descriptor, 0)
                os.write(self.descriptor, self._head)
            os.write(self.descriptor, text.encode("utf-8", "backslashreplace"))
            self._seen = self._size()

    def by_timer(self) -> StacksLook | None:
        """Return the look that the timer has appended since the last call; None if it did not fire.

        Raises:
            OSError: if the file cannot be read.
        """
        with self._lock:
            before, self._seen = self._seen, self._size()
            if self._seen <= before:
                return None
            data = os.pread(self.descriptor, min(self._seen - before, MOST_BYTES), before)
        return next((look for look in reversed(parse(data).looks) if look.by_timer), None)

    def close(self, *, remove: bool) -> None:
        """Close the file, and remove it if its session has ended well."""
        with self._lock, contextlib.suppress(OSError):
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _size(self) -> int:
        return os.fstat(self.descriptor).st_size


def stacks_path(directory: Path, session: str) -> Path:
    """Return the path of a session's file in the directory of `runtime_directory.private_directory`."""
    return directory / f"{session}{SUFFIX}"


def read_stacks(path: Path) -> StacksReading | None:
    """Return what a file of stacks holds; None where there is none that can be read.

    Raises nothing, opens nothing but an ordinary file, and reads a bounded part: the file may be a stranger's.
    """
    data = read_regular(path, 2 * MOST_BYTES)
    return None if data is None or not data.startswith(MAGIC.encode()) else parse(data)


def look_text(title: str, at: float, stacks: Mapping[str, Sequence[str]]) -> str:
    """Return a look as text, in the form described above."""
    lines = [f"== {at:.3f} {_one_line(title)}"]
    for thread, frames in sorted(stacks.items(), key=lambda item: item[0] != MAIN_THREAD):
        lines.append(f"Thread 0x{0:016x} [{_one_line(thread).replace(']', ')')}] (most recent call first):")
        for frame in reversed(frames):
            file, _, rest = _one_line(frame).rpartition(":")
            line, _, function = rest.partition(" ")
            lines.append(f'  File "{file}", line {line} in {function}')
        lines.append("")
    return "\n".join(lines) + "\n"


def parse(data: bytes) -> StacksReading:
    """Return what a file of stacks, or a part of it, says; what is not understood is left out."""
    session: str | None = None
    pid: int | None = None
    looks: deque[tuple[str, float | None, dict[str, list[str]]]] = deque(maxlen=MOST_LOOKS)
    frames: list[str] | None = None
    for text in data.decode("utf-8", "replace").split("\n"):
        line = text[:MOST_LETTERS]
        if titled := _TITLE.match(line):
            looks.append((titled["title"], float(titled["at"]), {}))
            frames = None
        elif _BY_TIMER.match(line):
            frames = []
            looks.append((BY_TIMER_TITLE, None, {MAIN_THREAD: frames}))
        elif looks and (thread := _THREAD.match(line)):
            threads = looks[-1][2]
            frames = threads.setdefault(thread["name"], []) if len(threads) < MOST_THREADS else None
        elif frame := _FRAME.match(line):
            if frames is not None and len(frames) < MAX_FRAMES:
                number = 0 if frame["line"] == "???" else int(frame["line"])
                frames.append(f"{frame['file']}:{number} {frame['function']}")
        elif not looks:
            word, _, rest = line.partition(" ")
            session = rest if word == "session" else session
            pid = int(rest) if word == "pid" and re.fullmatch("[0-9]{1,10}", rest) else pid
    found = (
        StacksLook(title=title, at=at, stacks={name: tuple(reversed(inner)) for name, inner in stacks.items()})
        for title, at, stacks in looks
    )
    return StacksReading(session=session, pid=pid, looks=tuple(found))


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
