"""`Notices`: what the program says of its run with ``notify``, on its way to the events file.

To say something costs a lock and a table; a thread of its own writes, which begins with the first notice. Whatever a
program says, and however often, it writes a bounded number of records, and counts the rest.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from queue import SimpleQueue

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.engine.progress import ProgressSnapshot
from supervisor_core.events.telemetry import NoticeRecord, Severity
from supervisor_core.run.fold.notices import notice_key
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import in_a_line

_LOG = logging.getLogger("supervisor_core")

EVERY_SECS = 1.0
"""A text that is said again and again is written once in this time."""
AT_ONCE = 20
"""How many records may follow each other without a pause; then it is one in `EVERY_SECS`."""
MOST_TEXTS = 100
"""How many texts are known at a time: one that is new replaces the one that was said longest ago."""
END_SECS = 1.0
"""How long the end waits for a record that is being written."""
AGAIN_SECS = Thresholds().notice_secs
"""A text that was not said for this long begins again."""
_READ_CHARACTERS = 4096
NOT_BEGUN, HAS_ENDED = "no session has begun", "the session has ended"
"""Why something is not recorded."""

_LEVELS: Mapping[Severity, int] = {"page": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO}


def checked(severity: str) -> Severity:
    """Return a severity.

    Raises:
        ValueError: if it is none.
    """
    for known in _LEVELS:
        if severity == known:
            return known
    raise ValueError(f"severity is {severity!r}; expected 'page', 'warn' or 'info'.")


def log_unrecorded(text: str, severity: str, why: str) -> None:
    """Log a notice that cannot be recorded.

    Args:
        severity: as it was given.
        why: half a sentence.

    Raises:
        ValueError: if the severity is none.
    """
    _LOG.log(_LEVELS[checked(severity)], "notify: %s (not recorded: %s)", _line(text), why)


class Notices:
    """The notices of one session. Any thread may call any method, and a signal handler `say`; nothing but a wrong
    severity raises.

    Args:
        write: writes a record, and the step it is of; must not raise.
        progress: returns the session's progress, for the step.
        spawn: runs the writing loop. Default: in a daemon thread.
    """

    def __init__(
        self,
        session: str,
        write: Callable[[NoticeRecord, int | None], object],
        progress: Callable[[], ProgressSnapshot],
        clock: Clock = SYSTEM_CLOCK,
        spawn: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._session, self._write, self._progress = session, write, progress
        self._clock = clock
        self._spawn = spawn or _in_daemon_thread
        self._process = os.getpid()
        self._lock = threading.RLock()
        """Of what follows. A signal handler may say something while its thread does."""
        self._said: dict[tuple[Severity, str], NoticeRecord] = {}
        """The one that was said last comes last."""
        self._unwritten: dict[tuple[Severity, str], bool] = {}
        """Whether it is to be logged, too: it has just begun."""
        self._heard: dict[tuple[object, ...], NoticeRecord] = {}
        """From other processes of the cluster."""
        self.is_empty = True
        """Whether nothing was said, by this process or another."""
        self._is_started = self._has_dropped = False
        self._may_write, self._filled_at = float(AT_ONCE), clock.monotonic()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._ended = threading.Event()
        self._writing = threading.Lock()
        """Held while records are taken out and written."""

    def say(self, text: str, severity: str = "warn") -> None:
        """Say something of the run.

        Args:
            text: one line; what is longer is cut.
            severity: ``page``, ``warn`` or ``info``.

        Raises:
            ValueError: if the severity is none of these.
        """
        if os.getpid() != self._process:  # where the lock may never be released
            log_unrecorded(text, severity, "this is a forked child of the session's process")
            return
        key = checked(severity), _line(text)
        now = self._clock.wall()
        with self._lock:
            if not (has_ended := self._ended.is_set()):
                self.is_empty = False
                self._add(key, now)
                is_first, self._is_started = not self._is_started, True
        if has_ended:
            log_unrecorded(text, severity, HAS_ENDED)
        elif is_first:
            self._start()

    def _add(self, key: tuple[Severity, str], now: float) -> None:
        known = self._said.pop(key, None)
        begins = known is None or abs(now - (known.at or 0.0)) > AGAIN_SECS
        if known is None or begins:
            known = NoticeRecord(session=self._session, severity=key[0], text=key[1], count=0, since=now)
        self._said[key] = replace(known, count=known.count + 1, at=now)
        if not self._unwritten:
            self._wake.put(None)
        self._unwritten[key] = begins or self._unwritten.get(key, False)
        if len(self._said) > MOST_TEXTS:
            oldest = next(iter(self._said))
            del self._said[oldest]
            if self._unwritten.pop(oldest, None) is not None:
                self._dropped()

    def _dropped(self) -> None:
        is_first, self._has_dropped = not self._has_dropped, True
        if is_first:
            _LOG.warning(
                "notify: more than %d different texts in a moment; not all are recorded. Leave numbers that change out "
                "of the text.",
                MOST_TEXTS,
            )

    def heard(self, record: NoticeRecord) -> None:
        """Take what another process of the cluster has said, and write it."""
        record = replace(record, session=self._session)
        with self._lock:
            self.is_empty = False
            self._heard.pop(key := notice_key(record), None)
            self._heard[key] = record
            if len(self._heard) > MOST_TEXTS:
                del self._heard[next(iter(self._heard))]
        self._write(record, record.step)

    def newest(self) -> tuple[NoticeRecord, ...]:
        """Return the notices that are known, by the time at which they were said last."""
        with self._lock:
            found = (*self._said.values(), *self._heard.values())
        return tuple(sorted(found, key=lambda record: record.at or 0.0))

    def end(self) -> None:
        """Write what was said and is not written; what is said from now on is logged only."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._ended.set()
        self._wake.put(None)
        step = self._progress().global_step
        if self._writing.acquire(timeout=END_SECS):  # else its thread hangs, on a dead disk
            try:
                self._write_with(step, MOST_TEXTS)
            finally:
                self._writing.release()

    def write_due(self) -> bool:
        """Write what may be written now, the oldest first; return whether some is left. The thread calls it, every
        `EVERY_SECS` while there is something."""
        now = self._clock.monotonic()
        self._may_write = min(float(AT_ONCE), self._may_write + (now - self._filled_at) / EVERY_SECS)
        self._filled_at = now
        most = int(self._may_write)
        self._may_write -= self._write_some(most)
        return bool(self._unwritten)

    def _start(self) -> None:
        try:
            self._spawn(self._write_until_ended)
        except RuntimeError:  # no thread can be started: the interpreter ends
            self._write_some(MOST_TEXTS)

    def _write_until_ended(self) -> None:
        while not self._ended.is_set():
            self._wake.get()
            is_left = True
            while is_left and not self._ended.is_set():
                is_left = self.write_due()
                self._ended.wait(EVERY_SECS)

    def _write_some(self, most: int) -> int:
        """Write records; return how many."""
        step = self._progress().global_step
        with self._writing:
            return self._write_with(step, most)

    def _write_with(self, step: int | None, most: int) -> int:
        for number in range(most):
            with self._lock:
                key = next(iter(self._unwritten), None)
                if key is None:
                    return number
                begins = self._unwritten.pop(key)
                record = self._said[key] = replace(self._said[key], step=step)
            self._write(record, step)
            if begins:
                _LOG.log(_LEVELS[record.severity], "notify: %s", record.text)
        return most


def _line(text: str) -> str:
    return in_a_line(str(text)[:_READ_CHARACTERS]) or "(no text)"


def _in_daemon_thread(loop: Callable[[], None]) -> None:
    threading.Thread(target=loop, name="supervisor_notices", daemon=True).start()
