"""The progress page: 4,096 bytes in memory with a process's progress, readable while the process or its disk hangs.

A session keeps one, ``<session id>.page``, in its user's `private_directory`; its liveness file names it. A step costs
two stores into mapped memory and no system call. After a `kill -9` the page stays, with the step that was reached.
``docs/progress-page.md`` describes it byte by byte.

Here are its format and its reader, `read_page`; `page_writer` keeps one up to date.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor_core.process.identity import boot_id, is_running, is_stopped, pid_namespace, started_ticks
from supervisor_core.process.runtime_directory import read_regular
from supervisor_core.process.stacks import Activity

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
"""A phase's number is its position here."""

# Positions in `ProgressPage.counts` and `ProgressPage.times`: the offset in the page, divided by 8.
SELECTOR, STEPS, LAST_PROGRESS, TICKS, TICK, TICK_BOOT, TICK_MAIN_THREAD, TICK_PROCESS = range(8, 16)

HEAD = struct.Struct("<8sQQqddQ")
"""Magic, version, pid, start of the process, start of the session by the wall and boot clocks, attempt."""
LIVE = struct.Struct("<QQdQdddd")
"""From `SELECTOR` to `TICK_PROCESS`."""
LIVE_AT = 64
_HEAD_FIELDS = ("pid", "process_started_ticks", "started_at", "started_boot_secs", "attempt")
_LIVE_FIELDS = ("steps", "progress_at", "ticks", "tick_at", "tick_boot_secs", "main_thread_secs", "process_secs")
"""The fields of `PageReading` that hold the numbers after the version, and those after the selector."""
TEXTS = {"session": (128, 64), "boot": (192, 64), "pids": (256, 64), "stacks": (1536, 1024), "logdir": (2560, 1024)}
"""Offset and bytes of each text that never changes: UTF-8, filled up with zeros."""
SLOTS = (512, 1024)
SLOT = struct.Struct("<qqQQdddQQQ48x384s")
"""Step before the first of this session, step per step, flags, phase, hang timeout, begin of the stall, when to act,
failed saves, those since the last good one, CRC-32 of both texts at `ERRORS_AT`, the stall's place."""
LOCATION_BYTES = 384
STEP_KNOWN, STALLED, ENDED, BUSY, WAITS, WRITES_KNOWN, EVENTS_FAIL = 1, 2, 4, 8, 16, 32, 64
ERRORS_AT = 3584
ERROR_BYTES = 256
"""Of each of two texts: why the last save failed, and why events cannot be written."""

MOST_DEAD, MOST_DEAD_BYTES = 1000, 16 << 20
"""Of the pages of dead processes, with their stacks, the newest stay: as many, and as much. They may be all that is
known of how a session ended, until the next one of its run, or its restarter, has recorded it."""

LARGEST = 10**15
"""No step or other count is larger; a global step that is counts as unknown."""
LATEST = 2.5e11
"""No time is longer, in seconds."""
_READINGS = 20
_ACTIVITIES: Mapping[int, Activity] = {BUSY: "busy", WAITS: "waits"}


@dataclass(frozen=True, kw_only=True)
class PageState:
    """What changes with the phase, not with each step, as it is written and as it is read."""

    phase: str = PHASES[0]
    hang_timeout_secs: float | None = None
    """The hang timeout of the phase: no progress for longer is a stall. None if it cannot stall."""
    act_after_secs: float | None = None
    """Whoever watches from outside acts after this long without progress: see `HangTimeouts.act_after`; later where
    the session acts itself. None if the session does not act, and in a page of an older version."""
    stalled_since: float | None = None
    location: str = ""
    """Where a known stall is, for people; empty where unknown."""
    activity: Activity | None = None
    """What the thread did there between two looks at its stack; None where unknown."""
    ended: bool = False
    """The session has ended and said so."""
    save_failures: int | None = 0
    """Failed saves of this session; None, like the next, in a page of a version that does not say."""
    save_failures_in_a_row: int | None = 0
    """Those since its last good save."""
    save_error: str = ""
    """Why the last one failed, when read: cut; empty if it was good."""
    events_fail: bool = False
    """Whether events cannot be written."""
    events_error: str = ""
    """Why they cannot, when read: cut."""


@dataclass(frozen=True, kw_only=True)
class WrittenState(PageState):
    """The state, and how the global step follows from the steps of the session."""

    first_step: int | None = None
    stride: int = 1

    def encode_errors(self) -> bytes:
        """Return the two texts."""
        texts = (self.save_error, self.events_error)
        return b"".join(_cut(text, ERROR_BYTES).ljust(ERROR_BYTES, b"\0") for text in texts)

    def encode(self, errors_crc: int) -> bytes:
        """Return a slot."""
        known = self.first_step is not None and abs(self.first_step) <= LARGEST and abs(self.stride) <= LARGEST
        flags = known * STEP_KNOWN | (self.stalled_since is not None) * STALLED | self.ended * ENDED
        flags |= (self.activity == "busy") * BUSY | (self.activity == "waits") * WAITS
        flags |= WRITES_KNOWN | self.events_fail * EVENTS_FAIL
        return SLOT.pack(
            (self.first_step or 0) if known else 0,
            self.stride if known else 0,
            flags,
            PHASES.index(self.phase) if self.phase in PHASES else 0,
            math.inf if self.hang_timeout_secs is None else self.hang_timeout_secs,
            self.stalled_since or 0.0,
            math.inf if self.act_after_secs is None else self.act_after_secs,
            min(self.save_failures or 0, LARGEST),
            min(self.save_failures_in_a_row or 0, LARGEST),
            errors_crc,
            _cut(self.location, LOCATION_BYTES),
        )


def new_page(*, pid: int, attempt: int, started_at: float, started_boot_secs: float, texts: dict[str, str]) -> bytes:
    """Return a new page, without a state."""
    started = started_ticks(pid)
    image = bytearray(PAGE_BYTES)
    head = (MAGIC, VERSION, pid, -1 if started is None else started, started_at, started_boot_secs, attempt)
    HEAD.pack_into(image, 0, *head)
    for name, text in texts.items():
        at, length = TEXTS[name]
        data = text.encode(errors="surrogateescape")
        if len(data) <= length:  # a cut path is another path
            image[at : at + len(data)] = data
    return bytes(image)


def _cut(text: str, length: int) -> bytes:
    return text.encode(errors="replace")[:length].decode(errors="ignore").encode()


@dataclass(frozen=True, kw_only=True)
class PageOwner:
    """The session that a page is of, and its process; ``boot`` fields count from the machine's start."""

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
    stacks: Path | None
    """Where the process writes the stacks of a stall in memory."""
    logdir: str | None

    @property
    def is_here(self) -> bool:
        """Whether its machine is this one and has not restarted since."""
        return self.boot is not None and self.boot == boot_id()

    @property
    def has_process(self) -> bool:
        """Whether its process id is still that of its process: on this machine, in this namespace of process ids."""
        is_same_namespace = self.is_here and self.pids == pid_namespace()
        return is_same_namespace and self.process_started_ticks == started_ticks(self.pid)

    @property
    def is_running(self) -> bool:
        """Whether its process is known to run; a zombie does not."""
        return self.has_process and is_running(self.pid)

    @property
    def is_stopped(self) -> bool:
        """Whether its process, which runs, is known to be stopped or frozen."""
        return is_stopped(self.pid)

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to be over; False where that is unknown."""
        if self.boot is None or boot_id() is None:
            return False
        return not self.is_here or (self.pids == pid_namespace() and not self.is_running)


@dataclass(frozen=True, kw_only=True)
class PageReading(PageOwner, PageState):
    """A page as it was at one moment. ``_at`` fields of progress and tick are monotonic seconds of its machine,
    ``boot`` ones count from the machine's start."""

    steps: int
    """Steps of this session."""
    step: int | None
    """The global step; None if it was never read."""
    is_step_exact: bool
    """Whether `step` is counted; if other processes change it as well, it is the one that was read last."""
    progress_at: float
    ticks: int
    """Number of the monitor's ticks; 0: it has not started, and the next four are 0."""
    tick_at: float
    tick_boot_secs: float
    main_thread_secs: float
    """CPU seconds of the main thread at that tick."""
    process_secs: float
    """CPU seconds of the process at that tick."""

    @property
    def progress_boot_secs(self) -> float:
        """Last progress by the clock that counts suspended time; `progress_at` without a tick."""
        return self.progress_at + (self.tick_boot_secs - self.tick_at)


def page_in(directory: Path, session_id: str) -> Path:
    """Return where the page of a session is in a directory."""
    return directory / f"{session_id}.page"


def read_page(path: str | os.PathLike[str]) -> PageReading | None:
    """Return what a page holds; None where there is none, or the file is no page that this version reads.

    Raises nothing. Opens no link, waits for nothing, and reads 4,096 bytes: a path may come from a logdir of others.
    """
    for reading in range(_READINGS):
        data = read_regular(path, PAGE_BYTES + 1)
        if data is None or len(data) != PAGE_BYTES or not data.startswith(MAGIC):
            return None
        with suppress(_TornError):
            return _decode(Path(path), data, is_last=reading == _READINGS - 1)
    return None


def page_of_session(path: str, session_id: str) -> PageReading | None:
    """Return the page that a session's liveness file names; None if that is another's, or from before a boot.

    Looks at no file of another name: the liveness file may be a stranger's.
    """
    if not os.path.isabs(path) or os.path.basename(path) != f"{session_id}.page":
        return None
    page = read_page(path)
    return page if page is not None and page.session == session_id and page.is_here else None


def pages_in(directories: Iterable[Path]) -> list[PageReading]:
    """Return the pages in some directories, see `private_directory`. Raises nothing."""
    paths = []
    for directory in dict.fromkeys(directories):
        with suppress(OSError):  # what cannot be looked at is left alone
            paths += [entry.path for entry in os.scandir(directory) if entry.name.endswith(".page")]
    return [page for path in paths if (page := read_page(path)) is not None]


def remove_page(page: PageOwner) -> None:
    """Remove a page, and the stacks of its session. Raises nothing."""
    for name in (page.path, page.path.with_suffix(".stacks")):
        with suppress(OSError):
            os.unlink(name)


def remove_oldest(dead: Iterable[PageReading]) -> None:
    """Remove what is too much of the pages of dead processes: a machine on which many are killed must not run out of
    memory. Raises nothing."""
    total = 0
    for number, page in enumerate(sorted(dead, key=lambda page: page.started_at, reverse=True)):
        for name in (page.path, page.path.with_suffix(".stacks")):
            with suppress(OSError):
                total += os.stat(name).st_size
        if number >= MOST_DEAD or total > MOST_DEAD_BYTES:
            remove_page(page)


class _TornError(Exception):
    """The page changed while it was read."""


def _decode(path: Path, data: bytes, *, is_last: bool) -> PageReading | None:
    _, version, *head = HEAD.unpack_from(data)
    selector, *live = LIVE.unpack_from(data, LIVE_AT)
    start = SLOTS[selector & 1]
    slot = data[start : start + SLOT.size]
    if version != VERSION:
        return None
    if zlib.crc32(slot) != selector >> 32:
        raise _TornError
    numbers = dict(zip((*_HEAD_FIELDS, *_LIVE_FIELDS), (*head, *live), strict=True))
    first_step, stride, flags, *_, stalled_since, _, failures, in_a_row, errors_crc, _ = fields = SLOT.unpack(slot)
    errors = _errors(data, errors_crc, is_last=is_last) if flags & WRITES_KNOWN else ("", "")
    times = [number for number in (*head, *live, stalled_since) if isinstance(number, float)]
    counts = (numbers["steps"], numbers["attempt"], numbers["ticks"], abs(first_step), abs(stride), failures, in_a_row)
    if max(counts) > LARGEST or not all(abs(secs) <= LATEST for secs in times):  # NaN is not, either
        return None
    if numbers["process_started_ticks"] < 0:
        numbers["process_started_ticks"] = None
    texts = {name: _text(data[at : at + length]) for name, (at, length) in TEXTS.items()}
    if not texts["session"]:
        return None
    return PageReading(
        path=path,
        session=texts["session"],
        boot=texts["boot"] or None,
        pids=texts["pids"] or None,
        stacks=Path(texts["stacks"]) if texts["stacks"] else None,
        logdir=texts["logdir"] or None,
        **numbers,
        **_state(fields, numbers["steps"]),
        save_error=errors[0],
        events_error=errors[1],
    )


def _state(fields: tuple[Any, ...], steps: int) -> dict[str, Any]:
    """Return the fields of `PageReading` that a slot gives."""
    first_step, stride, flags, phase, hang_timeout_secs, stalled_since, act_after_secs, *failing, _, location = fields
    step = first_step + stride * steps if flags & STEP_KNOWN else -1
    failures, in_a_row = failing if flags & WRITES_KNOWN else (None, None)
    return {
        "step": step if 0 <= step <= LARGEST else None,
        "is_step_exact": stride != 0 and 0 <= step <= LARGEST,
        "phase": PHASES[phase] if phase < len(PHASES) else PHASES[0],
        "hang_timeout_secs": hang_timeout_secs if 0 <= hang_timeout_secs <= LATEST else None,
        "act_after_secs": act_after_secs if 0 < act_after_secs <= LATEST else None,
        "stalled_since": stalled_since if flags & STALLED else None,
        "location": _text(location),
        "activity": _ACTIVITIES.get(flags & (BUSY | WAITS)),
        "ended": bool(flags & ENDED),
        "save_failures": failures,
        "save_failures_in_a_row": in_a_row,
        "events_fail": bool(flags & EVENTS_FAIL),
    }


def _errors(data: bytes, crc: int, *, is_last: bool) -> tuple[str, str]:
    """Return the two texts about what cannot be written; without them where the process was killed as it wrote them."""
    texts = data[ERRORS_AT : ERRORS_AT + 2 * ERROR_BYTES]
    if zlib.crc32(texts) == crc:
        return _text(texts[:ERROR_BYTES]), _text(texts[ERROR_BYTES:])
    if is_last:
        return "", ""
    raise _TornError


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode(errors="surrogateescape")
