"""The progress page: 4,096 bytes in memory with a process's progress, readable while the process or its disk hangs.

A session keeps one, ``<session id>.page``, in its user's `private_directory`, and names it in the lease. A step costs
two stores into mapped memory and no system call. After a `kill -9` the page stays, with the step that was reached.
``docs/progress-page.md`` describes it byte by byte.

`ProgressPage` writes one: the training thread `counts` and `times`, the monitor the fields of its tick, whoever changes
the phase the rest. `read_page` reads one.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import sys
import threading
import time
import weakref
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG
from typing import Any

from supervisor_core.process.identity import boot_id, is_running, pid_namespace, started_ticks
from supervisor_core.process.runtime_directory import private_directory

MAGIC = b"SUPVPAGE"
VERSION = 1
PAGE_BYTES = 4096

PHASES = (
    "unknown",
    "starting",
    "restoring",
    "training",
    "checkpointing",
    "evaluating",
    "stopping",
    "stopped",
    "compiling",
)
"""A phase's number is its place here."""

# Places in `ProgressPage.counts` and `ProgressPage.times`: the offset in the page, divided by 8.
SELECTOR, STEPS, LAST_PROGRESS, TICKS, TICK, TICK_BOOT, TICK_MAIN_THREAD, TICK_PROCESS = range(8, 16)

_HEAD = struct.Struct("<8sQQqddQ")
"""Magic, version, pid, start of the process, start of the session by the wall and boot clocks, attempt."""
_LIVE = struct.Struct("<QQdQdddd")
"""From `SELECTOR` to `TICK_PROCESS`."""
_LIVE_AT = 64
_TEXTS = {"session": (128, 64), "boot": (192, 64), "pids": (256, 64), "stacks": (1536, 1024), "logdir": (2560, 1024)}
"""Offset and bytes of each text that never changes: UTF-8, filled up with zeros."""
_SLOTS = (512, 1024)
_SLOT = struct.Struct("<qqQQdd80x384s")
"""Step before the first of this session, step per step, flags, phase, budget, begin of the stall, its place."""
_LOCATION_BYTES = 384
_STEP_KNOWN, _STALLED, _ENDED = 1, 2, 4

STALE_SECS = 7 * 86400.0
"""The pages of dead processes are removed this long after their session started."""
MOST_DEAD = 100
"""And before that all but the newest: a run that crashes again and again must not fill the memory."""

_LARGEST = 1 << 62
_READINGS = 20
_PAGES: weakref.WeakSet[ProgressPage] = weakref.WeakSet()


@dataclass(frozen=True, kw_only=True)
class _State:
    """What changes with the phase, not with each step."""

    first_step: int | None = None
    stride: int = 1
    phase: str = "unknown"
    budget_secs: float | None = None
    stalled_since: float | None = None
    location: str = ""
    ended: bool = False

    def encode(self) -> bytes:
        known = self.first_step is not None and abs(self.first_step) < _LARGEST and abs(self.stride) < _LARGEST
        flags = known * _STEP_KNOWN | (self.stalled_since is not None) * _STALLED | self.ended * _ENDED
        return _SLOT.pack(
            (self.first_step or 0) if known else 0,
            self.stride if known else 0,
            flags,
            PHASES.index(self.phase) if self.phase in PHASES else 0,
            math.inf if self.budget_secs is None else self.budget_secs,
            self.stalled_since or 0.0,
            _cut(self.location, _LOCATION_BYTES),
        )


class ProgressPage:
    """The page of one session. Without a file (see `create`) it is plain memory of the process.

    The training thread stores into `counts` and `times` by itself, at the places `STEPS` and `LAST_PROGRESS`: fetch the
    two from the page for each store, since a forked child's page gets others.
    """

    __slots__ = ("__weakref__", "_lock", "_path", "_process", "_selector", "_state", "counts", "times")

    def __init__(self) -> None:
        self.counts: memoryview[int]
        """The page as signed integers of 8 bytes."""
        self.times: memoryview[float]
        """The same bytes as floats."""
        self._map(memoryview(bytearray(PAGE_BYTES)))
        self._path: Path | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._selector = 0
        self._state = _State()

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
            directory: where; see `private_directory`.
            session_id: the session's id.
            pid: its process. Default: this one.
            attempt: the number of the session in its run; 0 where unknown.
            started_at: when the session started, wall time. Default: now.
            started_boot_secs: the same by `supervisor_core.clock.boot_secs`. Default: now.
            logdir: the run's directory, for whoever finds the page.

        Raises:
            OSError: if it cannot be created, for example because the memory is full.
        """
        if sys.byteorder != "little":
            raise OSError("progress pages need a little-endian machine")
        page, path = cls(), page_in(directory, session_id)
        image = _image(
            pid=os.getpid() if pid is None else pid,
            attempt=attempt,
            started_at=time.time() if started_at is None else started_at,
            started_boot_secs=_boot_secs() if started_boot_secs is None else started_boot_secs,
            texts={
                "session": session_id,
                "boot": boot_id() or "",
                "pids": pid_namespace() or "",
                "stacks": str(directory / f"{session_id}.stacks"),
                "logdir": logdir or "",
            },
        )
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            # Written, not only made that long: a store into memory that the file system cannot provide is a SIGBUS.
            if os.write(fd, image) != PAGE_BYTES:
                raise OSError(f"{path} could not be written in full")
            page._map(memoryview(mmap.mmap(fd, PAGE_BYTES)))
        except BaseException:
            with suppress(OSError):  # the first error is raised
                os.unlink(path)
            raise
        finally:
            os.close(fd)
        page._path = path
        page._write()
        _PAGES.add(page)
        return page

    @property
    def path(self) -> Path | None:
        """The file; None without one, after `close`, and in a forked child."""
        return self._path

    def take_over(self, other: ProgressPage) -> None:
        """Continue with the progress that another page of this session has."""
        with self._lock:
            self._state = other._state
            self.counts[STEPS] = other.counts[STEPS]
            for place in (LAST_PROGRESS, TICKS, TICK, TICK_BOOT, TICK_MAIN_THREAD, TICK_PROCESS):
                self.times[place] = other.times[place]
            self._write()

    def tick(self, *, at: float, boot_secs: float, main_thread_secs: float) -> None:
        """Record that the monitor runs: called by its thread only, about once a second.

        Args:
            at: monotonic seconds.
            boot_secs: the same by the clock that counts suspended time as well.
            main_thread_secs: CPU seconds that the main thread has used.
        """
        times = self.times
        times[TICK_MAIN_THREAD], times[TICK_PROCESS] = main_thread_secs, time.process_time()
        times[TICK], times[TICK_BOOT] = at, boot_secs
        self.counts[TICKS] += 1

    def step_is(self, first_step: int, stride: int) -> None:
        """Set how the global step follows from the steps of this session: ``first_step + stride * steps``."""
        state = self._state
        if state.first_step != first_step or state.stride != stride:  # rarely: each reading of the step asks
            self._change(first_step=first_step, stride=stride)

    def enter(self, phase: str, budget_secs: float | None) -> None:
        """Set the phase and its stall budget; None if it cannot stall."""
        state = self._state
        if state.phase != phase or state.budget_secs != budget_secs:
            self._change(phase=phase, budget_secs=budget_secs)

    def stalled(self, since: float | None, location: str = "") -> None:
        """Set a stall, or its end.

        Args:
            since: monotonic time of the last progress before it; None if there is no stall.
            location: where the code is, for people: ``MainThread at train.py:88 in step``.
        """
        self._change(stalled_since=since, location=location)

    def close(self, *, remove: bool = True) -> None:
        """Mark the session as ended and give up the file; further changes go nowhere. Closing twice changes nothing.

        Args:
            remove: delete the file, which nobody needs after a clean end.
        """
        self._change(ended=True)
        path, self._path = self._path, None
        _PAGES.discard(self)
        self._map(memoryview(bytearray(PAGE_BYTES)))  # never closed: another thread may be at a store
        if path is not None and remove and self._process == os.getpid():
            with suppress(OSError):  # gone, or the directory is: removed with the stale ones
                os.unlink(path)

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self._state = replace(self._state, **changes)
            self._write()

    def _write(self) -> None:
        """Write the state into the slot that is not in use, then switch to it with one store: a kill at any moment
        leaves one that is whole."""
        data = self._state.encode()
        self._selector = (self._selector + 1) & 0x7FFFFFFF
        start = _SLOTS[self._selector & 1]
        self.counts.cast("B")[start : start + _SLOT.size] = data
        self.counts.cast("B").cast("Q")[SELECTOR] = zlib.crc32(data) << 32 | self._selector

    def _map(self, memory: memoryview[int]) -> None:
        self.counts, self.times = memory.cast("q"), memory.cast("d")

    def _forget(self) -> None:
        """Leave the file to the parent, in a forked child."""
        self._lock = threading.Lock()
        self._path = None
        self._map(memoryview(bytearray(PAGE_BYTES)))


@dataclass(frozen=True, kw_only=True)
class PageReading:
    """A page as it was at one moment. ``_at`` fields of progress and tick are monotonic seconds of its machine,
    ``boot`` ones count from the machine's start."""

    path: Path
    session: str
    boot: str | None
    """The kernel's boot id; None where the system has none."""
    pids: str | None
    """The namespace of the process id."""
    pid: int
    process_started_ticks: int | None
    """When the process started, in clock ticks since the machine's start, as in ``/proc/PID/stat``: two processes of
    one id differ in it. None where the system does not say."""
    attempt: int
    """Number of the session in its run; 0 where unknown."""
    started_at: float
    """When the session started, wall time."""
    started_boot_secs: float
    steps: int
    """Steps of this session."""
    step: int | None
    """The global step; None if it was never read."""
    phase: str
    budget_secs: float | None
    """The stall budget of the phase; None if it cannot stall."""
    progress_at: float
    ticks: int
    """Number of the monitor's ticks; 0: it has not started, and the next four are 0."""
    tick_at: float
    tick_boot_secs: float
    main_thread_secs: float
    """CPU seconds of the main thread at that tick."""
    process_secs: float
    """CPU seconds of the process at that tick."""
    stalled_since: float | None
    location: str
    """Where a known stall is, for people; empty where unknown."""
    ended: bool
    """The session has ended and said so."""
    stacks: Path | None
    """Where the process writes the stacks of a stall in memory."""
    logdir: str | None

    @property
    def progress_boot_secs(self) -> float:
        """Last progress by the clock that counts suspended time; `progress_at` without a tick."""
        return self.progress_at + (self.tick_boot_secs - self.tick_at)

    @property
    def is_here(self) -> bool:
        """Whether its machine is this one and has not restarted since."""
        return self.boot is not None and self.boot == boot_id()

    @property
    def is_running(self) -> bool:
        """Whether its process is known to run: on this machine, in this namespace of process ids."""
        return (
            self.is_here
            and self.pids == pid_namespace()
            and is_running(self.pid)
            and self.process_started_ticks == started_ticks(self.pid)
        )

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to be over; False where that is unknown."""
        if self.boot is None or boot_id() is None:
            return False
        return not self.is_here or (self.pids == pid_namespace() and not self.is_running)


def page_for_session(session_id: str) -> Path:
    """Return where the page of a session of this user is.

    Raises:
        OSError: as `private_directory`.
    """
    return page_in(private_directory(), session_id)


def page_in(directory: Path, session_id: str) -> Path:
    """Return where the page of a session is in a directory."""
    return directory / f"{session_id}.page"


def read_page(path: str | os.PathLike[str]) -> PageReading | None:
    """Return what a page holds; None where there is none, or the file is no page that this version reads.

    Raises nothing. Opens no link, waits for nothing, and reads 4,096 bytes: a path may come from a logdir of others.
    """
    for _ in range(_READINGS):
        data = _read(path)
        if data is None:
            return None
        with suppress(_TornError):
            return _decode(Path(path), data)
    return None


def remove_stale(directory: Path, now: float) -> None:
    """Remove pages of dead processes, with their stacks, that are older than `STALE_SECS` or more than `MOST_DEAD`.

    Those of another namespace of process ids stay: whether their processes run is unknown. Raises nothing.

    Args:
        directory: see `private_directory`.
        now: wall time.
    """
    with suppress(OSError):  # what cannot be looked at is left alone
        found = [read_page(entry.path) for entry in os.scandir(directory) if entry.name.endswith(".page")]
        dead = [page for page in found if page is not None and page.is_dead]
        dead.sort(key=lambda page: page.started_at, reverse=True)
        for place, page in enumerate(dead):
            if place >= MOST_DEAD or now - page.started_at > STALE_SECS:
                for name in (page.path, page.path.with_suffix(".stacks")):
                    with suppress(OSError):
                        os.unlink(name)


class _TornError(Exception):
    """The page changed while it was read."""


def _read(path: str | os.PathLike[str]) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        # Not mapped: who cuts a mapped file kills its reader. The kernel copies aligned values as a whole.
        status = os.fstat(fd)
        data = os.pread(fd, PAGE_BYTES, 0) if S_ISREG(status.st_mode) and status.st_size == PAGE_BYTES else b""
    except OSError:
        return None
    finally:
        os.close(fd)
    return data if len(data) == PAGE_BYTES and data.startswith(MAGIC) else None


def _decode(path: Path, data: bytes) -> PageReading | None:
    _, version, pid, started, started_at, started_boot_secs, attempt = _HEAD.unpack_from(data)
    live = _LIVE.unpack_from(data, _LIVE_AT)
    selector, steps, progress_at, ticks, tick_at, tick_boot_secs, main_thread_secs, process_secs = live
    start = _SLOTS[selector & 1]
    slot = data[start : start + _SLOT.size]
    if version != VERSION:
        return None
    if zlib.crc32(slot) != selector >> 32:
        raise _TornError
    first_step, stride, flags, phase, budget_secs, stalled_since, location = _SLOT.unpack(slot)
    times = (started_at, started_boot_secs, progress_at, tick_at, tick_boot_secs, main_thread_secs, process_secs)
    if not all(map(math.isfinite, (*times, stalled_since))) or math.isnan(budget_secs) or steps >= _LARGEST:
        return None
    texts = {name: _text(data[at : at + length]) for name, (at, length) in _TEXTS.items()}
    if not texts["session"]:
        return None
    return PageReading(
        path=path,
        session=texts["session"],
        boot=texts["boot"] or None,
        pids=texts["pids"] or None,
        pid=pid,
        process_started_ticks=None if started < 0 else started,
        attempt=attempt,
        started_at=started_at,
        started_boot_secs=started_boot_secs,
        steps=steps,
        step=first_step + stride * steps if flags & _STEP_KNOWN else None,
        phase=PHASES[phase] if phase < len(PHASES) else PHASES[0],
        budget_secs=None if math.isinf(budget_secs) else budget_secs,
        progress_at=progress_at,
        ticks=ticks,
        tick_at=tick_at,
        tick_boot_secs=tick_boot_secs,
        main_thread_secs=main_thread_secs,
        process_secs=process_secs,
        stalled_since=stalled_since if flags & _STALLED else None,
        location=_text(location),
        ended=bool(flags & _ENDED),
        stacks=Path(texts["stacks"]) if texts["stacks"] else None,
        logdir=texts["logdir"] or None,
    )


def _image(*, pid: int, attempt: int, started_at: float, started_boot_secs: float, texts: dict[str, str]) -> bytes:
    """Return a new page, without a state."""
    started = started_ticks(pid)
    image = bytearray(PAGE_BYTES)
    _HEAD.pack_into(
        image, 0, MAGIC, VERSION, pid, -1 if started is None else started, started_at, started_boot_secs, attempt
    )
    for name, text in texts.items():
        at, length = _TEXTS[name]
        data = text.encode(errors="surrogateescape")
        if len(data) <= length:  # a cut path is another path
            image[at : at + len(data)] = data
    return bytes(image)


def _cut(text: str, length: int) -> bytes:
    return text.encode(errors="replace")[:length].decode(errors="ignore").encode()


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode(errors="surrogateescape")


def _boot_secs() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _after_fork() -> None:
    for page in list(_PAGES):
        page._forget()
    _PAGES.clear()


os.register_at_fork(after_in_child=_after_fork)
