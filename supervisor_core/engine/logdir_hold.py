"""`LogdirHold`: one live chief per logdir.

Two chiefs on one logdir delete each other's checkpoints. So a session locks ``<logdir>/.supervisor.lock``, and writes
its liveness file: at once, with each heartbeat, and at its end. While it lives, others are refused; a dead holder's
logdir is taken over:

* Holder on this machine (same kernel, any container): the lock decides, at once.
* Holder on another machine: dead if its liveness file has not been replaced for ``timeout_secs``, by the file server's
  clock (the file's modification time, against that of a file written just now): the machines' clocks need not agree.
* Where there are no locks (object stores, some network file systems): likewise; an ended process of this machine is
  dead at once.

A session that writes no checkpoints yields the logdir (``yields_logdir``): it takes only one in which no other kind of
session has been, keeps no lock, and a session that writes checkpoints takes the logdir over from it at once. So an
evaluation never blocks a training, and is not part of the training's history.

A holder that was suspended (SIGSTOP, a paused virtual machine, a network that was cut) until another took over does not
know it when it resumes. So each change that other processes can read checks first, synchronously: the liveness file is
opened by its name and read. If it is another session's, of the same attempt or a later one, this session was taken
over. If it is an earlier attempt's (a late write), damaged or missing, the next heartbeat repairs it. A lock that was
deleted or replaced is taken again.

Not covered is the time between this read and the system call after it: a process that is suspended right there
publishes that one thing when it resumes, and nothing after it. `docs/storage.md` describes the consequence.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock, boot_secs, utc_text
from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.base.systems import after_fork_in_child
from supervisor_core.checkpoint.guard import LOCK_NAME
from supervisor_core.engine.liveness_writer import MAX_INTERVAL_SECS, LivenessWriter
from supervisor_core.engine.session_history import SessionHistory, as_left, history_after
from supervisor_core.process.identity import Machine, is_running, this_machine
from supervisor_core.run.watch.liveness import CHIEF, LivenessRecord, chief_path, decode, token
from supervisor_core.storage.directory import may_pass, moved_text
from supervisor_core.storage.local import filesystem_for, local_path
from supervisor_core.storage.lock_file import LockedError, LockFile

READINGS = 5
"""Attempts at reading a damaged file: on a full disk its holder may be writing it at that moment."""

_LOG = logging.getLogger("supervisor_core")
_HOLDS: weakref.WeakSet[LogdirHold] = weakref.WeakSet()


@dataclass(eq=False)
class LogdirHold:
    """The right to be the chief of a logdir. One object per session; see the module's docstring.

    Args:
        logdir: the run's directory, local or not; created where it is missing.
        clock: gives the times in the liveness file.
        timeout_secs: a holder on another machine counts as dead after this time without a heartbeat.
        exclusive: False takes the logdir although another chief may be at work; `SessionHistory.exclusive` is then
            False.
        yields_logdir: the session writes no checkpoints; see the module's docstring.
        machine, pid: where this process runs, and its id.
        wait: sleeps for a number of seconds; injected by tests.
        on_taken_over: called once, in any thread, when another chief turns out to have taken over.

    Example:
        >>> hold = LogdirHold("/tmp/example-run")
        >>> history = hold.acquire("session-1")
        >>> hold.release()
        True
    """

    logdir: str | os.PathLike[str]
    _: KW_ONLY
    clock: Clock = SYSTEM_CLOCK
    timeout_secs: float = 60.0
    exclusive: bool = True
    yields_logdir: bool = False
    machine: Machine = field(default_factory=this_machine)
    pid: int = field(default_factory=os.getpid)
    wait: Callable[[float], object] = field(default_factory=lambda: threading.Event().wait)
    on_taken_over: Callable[[LogdirInUseError], None] = lambda error: None

    def __post_init__(self) -> None:
        self._logdir, local = os.fspath(self.logdir), local_path(self.logdir)
        self._lock = None if local is None else LockFile(os.path.join(local, LOCK_NAME))
        self._filesystem, self._path = filesystem_for(chief_path(self.logdir))
        self.liveness: LivenessWriter | None = None
        """Says that this session lives; None before it is acquired, and if no other chief is kept out."""
        self.is_moved = False
        """Whether the last check found that the logdir was renamed: nothing can be saved in it."""
        self.session: str | None = None
        """The session that has acquired it, also after its release."""
        self._history: SessionHistory | None = None
        self._takeover: str | None = None
        self._is_held = False
        self._retaking = threading.RLock()

    def acquire(
        self, session: str, *, after_attempt: int = 0, page: str | None = None, beat_secs: float = MAX_INTERVAL_SECS
    ) -> SessionHistory:
        """Take the logdir for a session.

        Args:
            after_attempt: the newest attempt known from other files, in case the liveness file is older or missing.
            page: path of the session's progress page.
            beat_secs: seconds between heartbeats.

        Raises:
            LogdirInUseError: if another chief holds it, or another session of this process; names the holder, since
                when, and the remedy. For a session that gives way, also if one that does not has held it before.
        """
        with contextlib.suppress(OSError):  # locking says what is wrong with the directory
            filesystem, name = filesystem_for(self._logdir)
            filesystem.make_directory(name)
        holder, flaw = self._take_lock()
        previous, warning = self._read()
        is_alive = previous is not None and self._is_alive(previous, is_locked=holder is None and flaw is None)
        is_kept_out = holder is not None
        if previous is not None and previous.yields_logdir:
            is_kept_out |= is_alive and self.yields_logdir
        elif previous is not None:
            is_kept_out |= is_alive or self.yields_logdir
        if is_kept_out and (self.exclusive or self.yields_logdir):
            text = self._refusal(previous, holder)
            self._release_lock()
            raise LogdirInUseError(text)
        if previous is not None and previous.yields_logdir and is_alive:  # displaced: no session that has ended
            after_attempt = max(previous.attempt, after_attempt)
            previous = None
        exact = False
        if previous is not None and not is_alive:
            previous, exact = as_left(previous, boot_secs(self.clock))
        now = self.clock.wall()
        run = history_after(previous, now, after_attempt=after_attempt, yields_logdir=self.yields_logdir)
        history = SessionHistory(run=run, previous=previous, is_last_step_exact=exact, warning=warning)
        if is_kept_out:
            text = f"another chief may be at work in {self._logdir}: {self._describe(previous, holder)}"
            history = replace(history, exclusive=False, warning=text)
        else:
            history = self._begin(session, history, flaw, page, beat_secs)
        if history.warning:
            _LOG.warning("%s", history.warning)
        return history

    @contextlib.contextmanager
    def while_idle(self) -> Iterator[None]:
        """Keep sessions out for as long as this takes, and leave no trace in the run's history.

        Raises:
            LogdirInUseError: if one is alive; names it.
        """
        holder, flaw = self._take_lock()
        try:
            last, _ = self._read()
            is_locked = holder is None and flaw is None
            saves = last is not None and not last.yields_logdir
            if holder is not None or (last is not None and saves and self._is_alive(last, is_locked=is_locked)):
                raise LogdirInUseError(f"The logdir {self._logdir} is in use by {self._describe(last, holder)}")
            yield
        finally:
            self._release_lock()

    def _take_lock(self) -> tuple[LockedError | None, OSError | None]:
        """Return who holds the lock, and why it could not be taken."""
        try:
            return None, None if self._lock is None else self._lock.take()
        except LockedError as error:
            return error, None
        except OSError as error:
            return None, error

    def _begin(
        self, session: str, history: SessionHistory, flaw: OSError | None, page: str | None, beat_secs: float
    ) -> SessionHistory:
        """Say that this session holds the logdir; return the history with what is wrong with that."""
        self._history, self._token, self._takeover = history, token(session), None
        if flaw is not None and self._lock is not None and not self._lock.is_in_place():
            self._lock = None  # it cannot be opened: only the liveness file counts
        self.liveness = LivenessWriter(
            self._logdir, CHIEF, session, interval_secs=min(beat_secs or MAX_INTERVAL_SECS, self.timeout_secs / 4),
            history=history.run, page=page, check=self.check, clock=self.clock, machine=self.machine, pid=self.pid,
        )  # fmt: skip
        error = self.liveness.write_now()
        self.session, self._is_held = session, True
        _HOLDS.add(self)
        if self.yields_logdir and self._lock is not None:
            self._lock.unlock()
        if isinstance(error, OSError) and not may_pass(error):
            reason = (flaw or error).strerror or str(flaw or error)
            self._is_held, self.liveness, self.session = False, None, None
            _HOLDS.discard(self)
            return replace(
                history,
                exclusive=False,
                warning=f"{self._logdir} cannot be guarded against a second chief: {reason}",
            )
        if error is not None:
            _LOG.warning("The liveness file %s could not be written, other machines do not see this session: %s",
                         self._path, error)  # fmt: skip
        if flaw is None:
            return history
        return replace(
            history,
            exclusive=False,
            warning=f"{self._logdir} has no file locks ({flaw.strerror or flaw}): only heartbeats in {self._path} keep "
            f"a second chief out, and a dead one is replaced after {self.timeout_secs:g} s",
        )

    def check(self) -> None:
        """Return if the session may publish; asked immediately before each publication, also after `release`.

        Raises:
            LogdirInUseError: if another chief has taken over, from then on always; names it.
            OSError: if the liveness file cannot be read, or the logdir is not there.
        """
        if self._takeover is not None:
            raise LogdirInUseError(self._takeover)
        if self.session is None:
            return
        try:
            found = self._other_session()
            is_in_place = not self._is_held or self._lock is None or self._lock.is_in_place()
            if is_in_place:
                is_later = found is not None and found.attempt >= self._attempt
                successor = found.process if found is not None and is_later else None
            else:
                successor = self._retake(found)
        except OSError:
            self.is_moved = self._lock is not None and bool(self._lock.path_now()) and not self._is_there()
            raise
        self.is_moved = False
        if successor is not None:
            self._record_takeover(successor)

    @property
    def _attempt(self) -> int:
        return 0 if self._history is None else self._history.run.attempt

    def bring_back(self) -> None:
        """Before a checkpoint is saved: make a logdir again that was deleted. One that was renamed, or is not mounted,
        may come back by itself. Then `check`, which raises what that says."""
        if self._is_held and self._lock is not None and self._lock.path_now() == "" and not self._is_there():
            filesystem, name = filesystem_for(self._logdir)
            filesystem.make_directory(name)
            _LOG.warning("The logdir %s was deleted; it is made again.", self._logdir)
        self.check()

    def release(self) -> bool:
        """Release the logdir; return whether it was still this session's. Never raises; further calls do nothing."""
        self._is_held = False
        _HOLDS.discard(self)
        with contextlib.suppress(OSError, LogdirInUseError):
            self.check()
        self._release_lock()
        return self._takeover is None

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _read(self) -> tuple[LivenessRecord | None, str | None]:
        """Return what the last chief has left, and why that is unknown."""
        reason = ""
        for _ in range(READINGS):
            try:
                return decode(self._filesystem.read(self._path)), None
            except FileNotFoundError:
                return None, None
            except OSError as error:
                reason = error.strerror or str(error)
            except ValueError as error:
                reason = str(error)
        return None, f"the earlier sessions of {self._logdir} are not known: {self._path} cannot be read: {reason}"

    def _other_session(self) -> LivenessRecord | None:
        """Return the record of another session in the liveness file; None if there is none."""
        for last in (*[False] * (READINGS - 1), True):
            try:
                data = self._filesystem.read(self._path)
                if data.startswith(self._token):
                    return None
                found = decode(data)
                return None if found.session == self.session else found  # somebody else wrote it, not another chief
            except FileNotFoundError:
                return None
            except ValueError:
                continue
            except OSError as error:
                if last or error.errno != errno.ESTALE:  # replaced while it was read, on a network file system
                    raise
        return None

    def _is_alive(self, holder: LivenessRecord, *, is_locked: bool) -> bool:
        """Say whether a holder may be alive although the lock could be taken."""
        if holder.ended is not None:
            return False
        here = (
            holder.boot == self.machine.boot if holder.boot and self.machine.boot else holder.host == self.machine.host
        )
        if here and is_locked and self._lock is not None and not holder.yields_logdir:
            return False
        if _is_own(holder):
            return True
        if here and holder.host == self.machine.host and (holder.pid == self.pid or not is_running(holder.pid)):
            return False
        age_secs = self._age_secs()
        return self._beats(holder, -age_secs) if age_secs < -1.0 else age_secs < self.timeout_secs

    def _beats(self, holder: LivenessRecord, ahead_secs: float) -> bool:
        """Wait for a heartbeat, for as long as a living holder needs for one: an age in the future proves nothing."""
        when = "written at an unknown time"
        if ahead_secs < math.inf:
            when = f"last written {ahead_secs:.0f} s in the future, so a clock was set back"
        text = "%s was %s: waiting up to %g s for a heartbeat, to see whether its holder is alive"
        _LOG.warning(text, self._path, when, self.timeout_secs)
        pause_secs = min(1.0, self.timeout_secs)
        for _ in range(math.ceil(self.timeout_secs / pause_secs)):
            self.wait(pause_secs)
            found, _ = self._read()
            if found is not None and (found.session, found.beats, found.ended) != (
                holder.session,
                holder.beats,
                holder.ended,
            ):
                return found.ended is None
        return False

    def _age_secs(self) -> float:
        """Return the age of the liveness file: never by its writer's clock."""
        now = None
        with contextlib.suppress(OSError):  # a directory that cannot be written
            now = self._filesystem.now_in(os.path.dirname(self._path))
        try:
            with self._filesystem.open(self._path) as reader:  # which makes network file systems ask their server
                status = reader.status
            written_at = self._filesystem.modified_at(self._path) if status is None else status.st_mtime
        except OSError:
            written_at = None
        if written_at is None:
            return -math.inf
        return (self.clock.wall() if now is None else now) - written_at

    def _describe(self, holder: LivenessRecord | None, locked: LockedError | None) -> str:
        """Return who holds the logdir: by the kernel's list of locks if that is another process than the last chief."""
        is_last = holder is not None and holder.ended is None
        if locked is not None and holder is not None and holder.machine == self.machine:
            is_last &= is_running(holder.pid) if locked.pid is None else holder.pid == locked.pid
        if holder is None or not is_last:
            return "another process" if locked is None else str(locked.strerror)
        since = f"{utc_text(holder.started_at) or 'unknown'} UTC"
        step = "" if holder.step is None else f", at step {holder.step:,}"
        who = "this very process" if _is_own(holder) else f"process {holder.pid} on {holder.host}"
        return f"{who} (session {holder.session}) since {since}{step}, seen {max(0.0, self._age_secs()):.0f} s ago"

    def _refusal(self, holder: LivenessRecord | None, locked: LockedError | None) -> str:
        """Return why a second chief is refused; without a lock the holder is not known to live."""
        remedy = "close that session" if holder is not None and _is_own(holder) else "stop that one"
        text = (
            f"The logdir {self._logdir} is in use by {self._describe(holder, locked)}. Two chiefs would delete each "
            f"other's checkpoints: {remedy}, or use another logdir"
        )
        if locked is None:
            free_in_secs = max(1.0, self.timeout_secs - max(0.0, self._age_secs()))
            text += f"; if it is dead, try again in {free_in_secs:.0f} s, or delete {self._path}"
        return text + ". Options(exclusive_logdir=False) starts anyway."

    def _retake(self, found: LivenessRecord | None) -> str | None:
        """Take the lock that has replaced the one taken before; return its holder if another process has it."""
        with self._retaking:
            lock, history = self._lock, self._history
            assert lock is not None and history is not None
            if not self._is_held or lock.is_in_place():  # another thread was faster
                return None
            now = lock.path_now()
            locked, flaw = self._take_lock()
            if locked is not None:
                return found.process if found is not None else locked.strerror
            if found is not None and (flaw is not None or self._is_successor(found, history)):
                return found.process
            if flaw is not None and not lock.is_in_place():
                if now and not self._is_there():
                    raise OSError(f"The logdir {moved_text(self._logdir, now)}")
                raise OSError(f"{lock.path} cannot be opened: {flaw.strerror or flaw}")
            what = f"was renamed to {now}" if now else "was deleted" if now == "" else "was replaced"
            _LOG.warning("The lock %s %s; this session goes on with a new one.", lock.path, what)
            if self.liveness is not None:
                self.liveness.write_soon()
            return None

    def _is_successor(self, found: LivenessRecord, history: SessionHistory) -> bool:
        is_of_run = found.history is not None and found.history.first_started_at == history.run.first_started_at
        return found.attempt >= history.run.attempt or not is_of_run

    def _is_there(self) -> bool:
        return os.path.isdir(self._logdir)

    def _record_takeover(self, successor: str) -> None:
        if self.yields_logdir:
            text = (
                f"The logdir {self._logdir} now belongs to {successor}, which writes checkpoints there: this process "
                "writes no telemetry any more."
            )
        else:
            text = (
                f"The logdir {self._logdir} was taken over by {successor}: this process had written no heartbeat for "
                f"longer than lease_timeout_secs ({self.timeout_secs:g} s), as when it is suspended or cut off from "
                "the storage. It publishes nothing any more and stops; the run goes on from the other chief's newest "
                "checkpoint."
            )
        with self._retaking:
            is_first, self._takeover = self._takeover is None, self._takeover or text
        if is_first and self._is_held:
            self.on_taken_over(LogdirInUseError(text))
        raise LogdirInUseError(self._takeover)

    def _forget(self) -> None:
        """In a forked child: the logdir stays the parent's."""
        self._is_held, self._retaking = False, threading.RLock()


def _is_own(holder: LivenessRecord) -> bool:
    """Say whether this very process holds the logdir, in another session."""
    return any(hold.session == holder.session for hold in list(_HOLDS))


def _after_fork() -> None:
    for hold in list(_HOLDS):
        hold._forget()
    _HOLDS.clear()


after_fork_in_child(_after_fork)
