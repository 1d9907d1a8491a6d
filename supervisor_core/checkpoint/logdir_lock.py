"""`LogdirLock`: one live chief per logdir, and the history of its sessions.

Two chiefs on one logdir delete each other's checkpoints. So a session takes a lease, ``<logdir>/.supervisor.lease``,
renews it with its heartbeats, and releases it with the reason of its end. While the holder lives, others are refused; a
dead holder's lease is taken over:

* Holder on this machine (same kernel, any container): the lock on the file decides, at once.
* Holder on another machine: dead after ``timeout_secs`` without a renewal, by the file server's clock (the lease's
  modification time, against that of a file written just now): the machines' clocks need not agree.
* Where there are no locks (object stores, some network file systems): likewise; an ended process of this machine is
  dead at once.

A session that writes no checkpoints yields the logdir (``yields_logdir``): it takes only one in which no other kind of
session has been, keeps no lock, and a session that writes checkpoints takes the logdir over from it at once. So an
evaluation never blocks a training, and is not part of the training's history.

A holder that was suspended until another took over is stopped before its next publication: `check`, see `guard`. The
lease also carries the history of the earlier sessions, see `SessionHistory`; `lease_file` describes the file byte by
byte.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import threading
import weakref
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock, boot_secs, utc_text
from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.base.systems import after_fork_in_child
from supervisor_core.checkpoint.guard import READINGS, Token, taken_over_text, yielded_text
from supervisor_core.checkpoint.lease_file import LEASE_NAME as LEASE_NAME
from supervisor_core.checkpoint.lease_file import LeaseFile, LeaseRecord, LockResult, decode, encode, lease_file_in
from supervisor_core.checkpoint.session_history import SessionHistory, as_left, history_after
from supervisor_core.process.identity import boot_id, is_running
from supervisor_core.storage.directory import moved_text
from supervisor_core.storage.local import filesystem_for

_LOG = logging.getLogger("supervisor_core")
_LEASES: weakref.WeakSet[LogdirLock] = weakref.WeakSet()


def _in_daemon_thread(renew: Callable[[], None]) -> None:
    threading.Thread(target=renew, name="supervisor-lease", daemon=True).start()


@dataclass(eq=False)
class LogdirLock:
    """The right to be the chief of a logdir. One object per session; see the module's docstring.

    Args:
        logdir: the run's directory, local or not; created where it is missing.
        clock: gives the lease's times.
        timeout_secs: a holder on another machine counts as dead after this time without a renewal. Renew at least
            three times as often.
        exclusive: False takes the logdir although another chief may be at work; `SessionHistory.exclusive` is then
            False.
        yields_logdir: the session writes no checkpoints; see the module's docstring.
        host, pid, boot: this machine's name, this process, this kernel's boot id. Default: the operating system's.
        file: stores the lease. Default: in the logdir.
        wait: sleeps for a number of seconds; injected by tests.
        spawn: runs a renewal, so that a hanging file system blocks no caller. Default: in a daemon thread.
        on_taken_over: called once, in any thread, when another chief turns out to have taken over.

    Example:
        >>> lease = LogdirLock("/tmp/example-run")
        >>> history = lease.acquire("session-1")
        >>> lease.renew(last_step=10)
        >>> lease.release("completed", last_step=20)
    """

    logdir: str | os.PathLike[str]
    _: KW_ONLY
    clock: Clock = SYSTEM_CLOCK
    timeout_secs: float = 60.0
    exclusive: bool = True
    yields_logdir: bool = False
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    boot: str | None = field(default_factory=boot_id)
    file: LeaseFile | None = None
    wait: Callable[[float], object] = field(default_factory=lambda: threading.Event().wait)
    spawn: Callable[[Callable[[], None]], None] = _in_daemon_thread
    on_taken_over: Callable[[LogdirInUseError], None] = lambda error: None

    def __post_init__(self) -> None:
        self._logdir = os.fspath(self.logdir)
        self._file = self.file or lease_file_in(self.logdir)
        self._record: LeaseRecord | None = None
        self._previous: LeaseRecord | None = None
        self._token: Token | None = None
        self._takeover: str | None = None
        self._renewing = self._warned = False
        self.is_moved = False
        """Whether the last renewal found that the logdir was renamed: nothing can be saved in it."""
        self._state_lock = threading.Lock()
        self._file_lock = threading.RLock()

    @property
    def session(self) -> str | None:
        """The session that holds the lease; None before it is taken and after it is released."""
        return None if self._record is None else self._record.session

    @property
    def renewal_secs(self) -> float:
        """Interval of renewals: the next session knows nothing that a killed one did after its last renewal."""
        return min(self.timeout_secs / 4, self._file.renewal_secs)

    def acquire(self, session: str, *, after_attempt: int = 0) -> SessionHistory:
        """Take the lease for a session.

        Args:
            session: its id.
            after_attempt: the newest attempt known from other files, in case the lease is older or missing.

        Raises:
            LogdirInUseError: if another chief holds it, or another session of this process; names the holder, since
                when, and the remedy. For a session that gives way, also if one that does not has held it before.
        """
        with contextlib.suppress(OSError):  # taking the lease says what is wrong with the directory
            filesystem, name = filesystem_for(self._logdir)
            filesystem.make_directory(name)
        result = self._file.take()
        previous, warning = self._read()
        alone = result.verdict in ("ours", "lockless")
        is_alive = previous is not None and self._is_alive(previous, locked=result.verdict in ("ours", "unwritable"))
        is_kept_out = result.verdict == "theirs" or (previous and self._is_kept_out_by(previous, is_alive))
        if is_kept_out and (self.exclusive or self.yields_logdir):
            self._file.release()
            raise LogdirInUseError(self._refusal(previous, certain=result.verdict == "theirs"))
        if is_kept_out:
            alone, warning = False, f"another chief may be at work in {self._logdir}: {self._describe(previous)}"
        elif not alone:
            warning = self._flaw(result)
        now, now_boot_secs = self.clock.wall(), boot_secs(self.clock)
        if previous is not None and previous.yields_logdir and is_alive:  # displaced: no session that has ended
            after_attempt = max(previous.attempt, after_attempt)
            previous = None
        exact = False
        if previous is not None and not is_alive:
            previous, exact = as_left(previous, now_boot_secs)
        history = history_after(
            previous, now, is_last_step_exact=exact, after_attempt=after_attempt, exclusive=alone, warning=warning
        )
        self._previous = previous
        if warning:
            _LOG.warning("%s", warning)
        if alone or (result.verdict == "unlocked" and not is_kept_out):
            self._record = self._first_record(session, history, now, now_boot_secs)
            _LEASES.add(self)
            self._write_or_warn()
            if self.yields_logdir:
                self._file.unlock()
            self._token = Token(session, history.attempt)
        return history

    def _flaw(self, result: LockResult) -> str:
        """Return the warning for a file that could not be locked, or not be written."""
        if result.verdict != "unlocked":
            return f"{self._logdir} cannot be guarded against a second chief: {result.reason}"
        return (
            f"{self._logdir} has no file locks ({result.reason}): only renewals of {self._file.path} keep a second "
            f"chief out, and a dead one is replaced after {self.timeout_secs:g} s"
        )

    def _first_record(self, session: str, history: SessionHistory, now: float, now_boot_secs: float) -> LeaseRecord:
        return LeaseRecord(
            session=session,
            attempt=history.attempt,
            host=self.host,
            boot=self.boot,
            pid=self.pid,
            started_at=now,
            first_started_at=history.first_started_at,
            renewed_at=now,
            started_boot_secs=now_boot_secs,
            renewed_boot_secs=now_boot_secs,
            restarts=dict(history.restarts),
            steps_lost=history.steps_lost,
            **history.costs,  # type: ignore[arg-type]
            predecessor=history.predecessor,
            yields_logdir=self.yields_logdir,
        )

    def check(self) -> None:
        """Return if the session may publish; asked immediately before each publication, also after `release`.

        Raises:
            LogdirInUseError: if another chief has taken over, from then on always; names it.
            OSError: if the lease file cannot be read.
        """
        if self._takeover is not None:
            raise LogdirInUseError(self._takeover)
        successor = None if self._token is None else self._token.find_successor(self._file, self._retake)
        if successor is not None:
            self._record_takeover(successor)

    def bring_back(self) -> None:
        """Before a checkpoint is saved: make a logdir again that was deleted. One that was renamed, or is not mounted,
        may come back by itself. Then `check`, which raises what that says."""
        if self._record is not None and self._file.path_now() == "" and not self._is_there():
            filesystem, name = filesystem_for(self._logdir)
            filesystem.make_directory(name)
            _LOG.warning("The logdir %s was deleted; it is made again.", self._logdir)
        self.check()

    def record_ready(self) -> None:
        """Record that this session has a model of its own; written with the next renewal."""
        with self._state_lock:
            if self._record is not None:
                self._record = replace(self._record, predecessor=None)

    def record_restore(self, step: int) -> int:
        """Record the step from which this session resumed; return the number of steps to be recomputed."""
        previous = self._previous
        lost = max(0, previous.last_step - step) if previous and previous.last_step is not None else 0
        self.record_rewind(lost, step)
        self._write_or_warn()
        return lost

    def record_rewind(self, lost: int, step: int) -> None:
        """Record that this session itself went back ``lost`` steps to ``step``; written with the next renewal."""
        with self._state_lock:
            if self._record is not None:
                self._record = replace(self._record, steps_lost=self._record.steps_lost + lost, last_step=step)

    def renew(self, *, last_step: int | None = None, **report: Any) -> None:
        """Renew the lease. Returns at once; while a renewal hangs, no second one is started.

        Args:
            last_step: the last step.
            report: other fields of the `LeaseRecord`.

        Raises:
            LogdirInUseError: if another chief is known to have taken over; nothing can be published any more.
        """
        if self._takeover is not None:
            raise LogdirInUseError(self._takeover)
        with self._state_lock:
            if self._record is None:
                return
            self._record = self._record.renewed(
                self.clock, last_step=last_step, renewals=self._record.renewals + 1, **report
            )
            if self._renewing:
                return
            self._renewing = True
        try:
            self.spawn(self._renew)
        except RuntimeError as error:  # no more threads, or the interpreter is going down
            self._renewing = False
            self._warn_once(error)

    def release(
        self, reason: str, *, last_step: int | None = None, steps_lost: int | None = None, **report: Any
    ) -> bool:
        """Release the lease; return whether it was still this session's. Never raises; further calls do nothing.

        Args:
            reason: why the session ended (``completed``, ``signal``, ``error`` ...).
            last_step: the last step. Default: that of the last renewal.
            steps_lost: steps recomputed by this and the earlier sessions. Default: what `record_restore` counted.
            report: other fields of the `LeaseRecord`.
        """
        with self._state_lock:
            record, self._record = self._record, None
        _LEASES.discard(self)
        if record is None:
            self._file.release()
            return self._takeover is None
        ended = record.renewed(
            self.clock,
            last_step=last_step,
            ended=reason,
            ended_at=self.clock.wall(),
            steps_lost=record.steps_lost if steps_lost is None else steps_lost,
            **report,
        )
        if self._file_lock.acquire(timeout=5.0):  # a renewal that hangs: the process is going, and its lock with it
            try:
                self._put(ended)
            except (OSError, LogdirInUseError) as error:
                level = logging.INFO if self.yields_logdir else logging.WARNING
                _LOG.log(level, "The end of the session could not be recorded in %s: %s", self._file.path, error)
            finally:
                self._file.release()
                self._file_lock.release()
        return self._takeover is None

    def _read(self) -> tuple[LeaseRecord | None, str | None]:
        reason = ""
        for _ in range(READINGS):
            try:
                return decode(self._file.read()), None
            except OSError as error:
                reason = error.strerror or str(error)
            except ValueError as error:
                reason = str(error)
        return None, f"the earlier sessions of {self._logdir} are not known: {self._file.path} cannot be read: {reason}"

    def _is_kept_out_by(self, previous: LeaseRecord, is_alive: bool) -> bool:
        if previous.yields_logdir:
            return is_alive and self.yields_logdir
        return is_alive or self.yields_logdir

    def _is_alive(self, holder: LeaseRecord, *, locked: bool) -> bool:
        """Say whether a holder may be alive although the lock could be taken."""
        if holder.ended is not None:
            return False
        here = holder.boot == self.boot if holder.boot and self.boot else holder.host == self.host
        if here and locked and not holder.yields_logdir:
            return False
        if _is_ours(holder):
            return True
        if here and holder.host == self.host and (holder.pid == self.pid or not is_running(holder.pid)):
            return False
        age_secs = self._age_secs(holder)
        return self._is_renewed(holder, -age_secs) if age_secs < -1.0 else age_secs < self.timeout_secs

    def _is_renewed(self, holder: LeaseRecord, ahead_secs: float) -> bool:
        """Wait for a renewal, for as long as a living holder needs for one: an age in the future proves nothing."""
        _LOG.warning(
            "%s was last renewed %.0f s in the future, so a clock was set back: waiting up to %g s for a renewal, to "
            "see whether its holder is alive",
            self._file.path,
            ahead_secs,
            self.timeout_secs,
        )
        pause_secs = min(self._file.renewal_secs, self.timeout_secs)
        for _ in range(math.ceil(self.timeout_secs / pause_secs)):
            self.wait(pause_secs)
            found, _ = self._read()
            if found is not None and (found.session, found.renewals, found.ended) != (
                holder.session,
                holder.renewals,
                holder.ended,
            ):
                return found.ended is None
        return False

    def _age_secs(self, holder: LeaseRecord) -> float:
        age = self._file.age_secs()
        return self.clock.wall() - holder.renewed_at if age is None else age

    def _describe(self, holder: LeaseRecord | None) -> str:
        """Return who holds the lease, since when, its step, and the age of its last renewal."""
        if holder is None or holder.ended is not None:
            return "a process that has not yet said who it is"
        since = f"{utc_text(holder.started_at) or 'unknown'} UTC"
        step = "" if holder.last_step is None else f", at step {holder.last_step:,}"
        who = "this very process" if _is_ours(holder) else f"process {holder.pid} on {holder.host}"
        age_secs = max(0.0, self._age_secs(holder))
        return f"{who} (session {holder.session}) since {since}{step}, renewed {age_secs:.0f} s ago"

    def _refusal(self, holder: LeaseRecord | None, *, certain: bool) -> str:
        """Return why a second chief is refused; ``certain``: the holder is known to live."""
        remedy = "close that session" if holder is not None and _is_ours(holder) else "stop that one"
        text = (
            f"The logdir {self._logdir} is in use by {self._describe(holder)}. Two chiefs would delete each other's "
            f"checkpoints: {remedy}, or use another logdir"
        )
        if holder is not None and not certain:
            free_in_secs = max(1.0, self.timeout_secs - max(0.0, self._age_secs(holder)))
            text += f"; if it is dead, try again in {free_in_secs:.0f} s, or delete {self._file.path}"
        return text + ". Options(exclusive_logdir=False) starts anyway."

    def _renew(self) -> None:
        try:
            self._write()
            self._warned = False
        except OSError as error:
            self._warn_once(error)
        finally:
            with self._state_lock:
                self._renewing = False

    def _warn_once(self, error: Exception) -> None:
        if not self._warned:
            _LOG.warning("The lease %s could not be renewed: %s", self._file.path, error)
        self._warned = True

    def _write(self) -> None:
        """Write the record as it is now, unless another chief has taken over."""
        with contextlib.suppress(LogdirInUseError), self._file_lock:  # `check` has reported it
            with self._state_lock:
                record = self._record
            if record is not None:
                self._put(record)

    def _put(self, record: LeaseRecord) -> None:
        """Write a record, unless another chief has taken over: also into a logdir that is elsewhere, where it shows
        that this session lives; then it raises all the same."""
        try:
            self.check()
        except OSError:
            self.is_moved = is_elsewhere = bool(self._file.path_now()) and not self._is_there()
            if is_elsewhere and self._token is not None and self._token.begins(self._file.read()):
                self._file.write(encode(record))
            raise
        self._file.write(encode(record))
        self.is_moved = False

    def _write_or_warn(self) -> None:
        try:
            self._write()
        except OSError as error:
            _LOG.warning("The lease %s could not be written: %s", self._file.path, error)

    def _retake(self, found: LeaseRecord | None) -> str | None:
        """Take the file that has replaced the one taken before; return its holder if another process has it."""
        with self._file_lock:
            record = self._record
            if found is not None and self._token is not None and found.session == self._token.session:
                found = None
            if record is None:  # released
                return None if found is None else found.holder
            if self._file.is_in_place():  # another thread was faster
                return None
            now = self._file.path_now()
            result = self._file.take()
            verdict = result.verdict
            if verdict == "unavailable" and found is None:
                if now and not self._is_there():
                    raise OSError(f"The logdir {moved_text(self._logdir, now)}")
                raise OSError(f"{self._file.path} cannot be opened: {result.reason}")
            if verdict == "theirs":
                return found.holder if found else "another process"
            if found is not None and (verdict != "ours" or found.attempt >= record.attempt):
                return found.holder
            if found is not None and found.first_started_at != record.first_started_at:  # of another run
                return found.holder
            self._file.write(encode(record))
            what = f"was renamed to {now}" if now else "was deleted" if now == "" else "was replaced"
            _LOG.warning("The lease %s %s; this session goes on with a new one.", self._file.path, what)
            return None

    def _is_there(self) -> bool:
        return os.path.isdir(os.path.dirname(self._file.path))

    def _record_takeover(self, successor: str) -> None:
        with self._state_lock:
            first, is_held = self._takeover is None, self._record is not None
            if self._takeover is None and self.yields_logdir:
                self._takeover = yielded_text(self._logdir, successor)
            elif self._takeover is None:
                self._takeover = taken_over_text(self._logdir, successor, self.timeout_secs)
        if first and is_held:
            self.on_taken_over(LogdirInUseError(self._takeover))
        raise LogdirInUseError(self._takeover)

    def _close_in_child(self) -> None:
        """Close the file in a forked child: the lease stays the parent's."""
        self._state_lock, self._file_lock = threading.Lock(), threading.RLock()
        self._record = None
        self._file.release()


def _is_ours(holder: LeaseRecord) -> bool:
    """Say whether this very process holds the lease, in another session."""
    return any(lease.session == holder.session for lease in list(_LEASES))


def _after_fork() -> None:
    for lease in list(_LEASES):
        lease._close_in_child()
    _LEASES.clear()


after_fork_in_child(_after_fork)
