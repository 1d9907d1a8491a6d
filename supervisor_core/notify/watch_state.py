"""`WatchState`: what a watcher of some logdirs leaves to the next one, and that there is no second one meanwhile.

In a directory of the user's are, for each logdir, a file that its watcher has locked and that says who that is, and for
all logdirs of a watcher together one file: when it has last looked, the ids of the events that it took, and what is
unsent. They hold no URL of a service, and no command.

A file that another user made, or that is none, is ignored, in a line of the log. A directory that cannot be used takes
no message away: that is logged, and nothing is kept.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import re
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from supervisor_core.base.clock import utc_text
from supervisor_core.base.errors import LogdirInUseError
from supervisor_core.base.log import command_line, error_text, printable
from supervisor_core.base.systems import AS_BYTES, CLOSE_ON_EXEC, IS_WINDOWS, user_id
from supervisor_core.checkpoint.ownership import others_may_write, own_there
from supervisor_core.notify.outbox import ServiceLeft
from supervisor_core.run.model.words import DAY_SECS
from supervisor_core.storage.local import absolute
from supervisor_core.storage.lock_file import LockedError, LockFile
from supervisor_core.storage.opening import open_own

STATE_VARIABLE = "XDG_STATE_HOME"
"""Environment variable of the system's own directory for states of this user."""
FORGET_SECS = 30 * DAY_SECS
"""For how long the file of a watcher that was not started again is kept."""
_SAVE_SECS = 2.0
"""How long the last save is waited for: the disk may hang."""
_MOST_BYTES = 64 << 20
_OURS = re.compile(r"[0-9a-f]{16}\.json(-[0-9a-f]{16})?")

_LOG = logging.getLogger("supervisor_core")


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a watcher leaves to the next one."""

    looked_at: float | None = None
    """Wall time of the last look; None if there was none."""
    services: Mapping[str, ServiceLeft] = field(default_factory=dict)
    """By their names."""


def state_of(logdirs: Sequence[str], directory: str | None = None) -> WatchState | None:
    """Return the state of a watcher, and lock its logdirs; None where nothing can be kept, which is logged.

    Args:
        logdirs: what it watches.
        directory: None for the user's own.

    Raises:
        LogdirInUseError: if one of the logdirs is watched.
    """
    found = default_directory() if directory is None else Path(directory)
    if found is None:
        _LOG.warning("This user has no home: nothing is kept of what was sent, unless --state is given")
        return None
    try:
        return WatchState(found, logdirs)
    except OSError as error:
        _LOG.warning("the directory %s cannot be used, nothing is kept of what was sent: %s", found, error_text(error))
        return None


def default_directory() -> Path | None:
    """Return where the states of this user's watchers are: ``tb-supervisor/notify`` in the directory for states; None
    for a user without a home."""
    state = os.environ.get(STATE_VARIABLE, "")
    try:
        base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return base / "tb-supervisor" / "notify"


class WatchState:
    """See the module's docstring.

    Args:
        directory: is created, for this user alone.
        logdirs: what is watched.

    Raises:
        LogdirInUseError: if one of the logdirs is watched.
        OSError: if the directory cannot be used.
    """

    def __init__(self, directory: Path, logdirs: Sequence[str]) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._check_owner()
        self._remove_old()
        watched = sorted({absolute(logdir) for logdir in logdirs})
        self._path = directory / f"{_digest(watched)}.json"
        self._what: Callable[[], Left] = Left
        self._changed, self._is_closing, self._is_failing = threading.Event(), False, False
        self._thread = threading.Thread(target=self._save_until_closed, name="watch-state", daemon=True)
        self._locks: list[LockFile] = []
        try:
            for logdir in watched:
                self._lock(logdir)
            self.left = self._read()
        except BaseException:
            self._unlock()
            raise

    def keep(self, what: Callable[[], Left]) -> None:
        """Save what this returns, in a thread, from now on at each `changed`."""
        self._what = what
        self._thread.start()

    def changed(self) -> None:
        """Save; it does not wait."""
        self._changed.set()

    def close(self) -> None:
        """Save for the last time, and let another one watch the logdirs."""
        self._is_closing = True
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(_SAVE_SECS)
        else:
            self._unlock()

    def _save_until_closed(self) -> None:
        is_last = False
        while not is_last:
            self._changed.wait()
            self._changed.clear()
            is_last = self._is_closing
            try:
                self._save(self._what())
                self._is_failing = False
            except OSError as error:
                if not self._is_failing:
                    _LOG.warning("%s cannot be written: %s", self._path, error_text(error))
                self._is_failing = True
        self._unlock()

    def _save(self, left: Left) -> None:
        services = {
            name: {
                "known": of.known,
                "unsent": [{"since": item.since, "event": asdict(item.event)} for item in of.unsent],
            }
            for name, of in left.services.items()
        }
        data = json.dumps({"looked_at": left.looked_at, "services": services}).encode()
        own = self._path.with_name(f"{self._path.name}-{secrets.token_hex(8)}")
        try:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | CLOSE_ON_EXEC | AS_BYTES
            with open(os.open(own, flags, 0o600), "wb") as file:
                file.write(data)
            os.replace(own, self._path)
        except OSError:
            with suppress(OSError):
                own.unlink(missing_ok=True)
            raise

    def _read(self) -> Left:
        """Return what the last watcher has left; nothing, and a line of the log, where that is no file of it."""
        try:
            with open(self._open(self._path, os.O_RDONLY), "rb") as file:
                found = msgspec.convert(json.loads(file.read(_MOST_BYTES)), Left)
        except FileNotFoundError:
            return Left()
        except OSError as error:
            why = error_text(error)
        except (ValueError, RecursionError, msgspec.MsgspecError):
            why = "it is damaged"
        else:
            times = [0.0 if found.looked_at is None else found.looked_at]
            unsent = [item for of in found.services.values() for item in of.unsent]
            times += [at for item in unsent for at in (item.since, item.event.at)]
            if all(map(math.isfinite, times)):
                return found
            why = "it is damaged"
        _LOG.warning("%s is ignored, what was not sent before is not known: %s", self._path, why)
        return Left()

    def _lock(self, logdir: str) -> None:
        """Lock a logdir, and say who watches it."""
        if IS_WINDOWS:  # where a second watcher is not noticed
            return
        path = self._directory / f"{_digest([logdir])}.lock"
        lock = LockFile(str(path))
        try:
            if path.exists():
                os.close(self._open(path, os.O_RDWR))  # an error for another's
            flaw = lock.take()
        except LockedError as error:
            with open(self._open(path, os.O_RDONLY), "rb") as file:
                who = _owner(file.read(1 << 16)) or error.strerror
            raise LogdirInUseError(
                f"{printable(logdir)} is watched by {who}. One watcher of a logdir sends its messages; for others, "
                "give another --state"
            ) from None
        except OSError as error:
            flaw = error
        if flaw is not None:
            _LOG.warning("%s is ignored, a second watcher is not noticed: %s", path, error_text(flaw))
            lock.release()
            return
        os.ftruncate(lock.descriptor, 0)
        owner = {"logdir": logdir, "host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
        os.write(lock.descriptor, json.dumps(owner).encode())
        self._locks.append(lock)

    def _unlock(self) -> None:
        while self._locks:
            lock = self._locks.pop()
            with suppress(OSError):
                os.unlink(lock.path)
            lock.release()

    def _open(self, path: Path, flags: int) -> int:
        """Return the descriptor of a file of this user; OSError for any other, and for what is none."""
        descriptor = open_own(str(path), flags)
        owner = os.fstat(descriptor).st_uid
        if owner != user_id() and owner not in own_there(str(self._directory)):
            os.close(descriptor)
            raise PermissionError(errno.EPERM, f"It belongs to user {owner}", str(path))
        return descriptor

    def _check_owner(self) -> None:
        """Raise an error if another user may rename files in the directory."""
        path, found = str(self._directory), os.stat(self._directory)
        if found.st_uid not in {0, user_id()} and found.st_uid not in own_there(path):
            raise PermissionError(errno.EPERM, f"It belongs to user {found.st_uid}", path)
        if os.name == "posix" and not found.st_mode & stat.S_ISVTX and others_may_write(path, found):
            raise PermissionError(
                errno.EPERM, f"Others may write it: {command_line('chmod', 'go-w', '--', path)}", path
            )

    def _remove_old(self) -> None:
        oldest = time.time() - FORGET_SECS  # of files
        with os.scandir(self._directory) as entries:
            for entry in entries:
                with suppress(OSError):
                    if _OURS.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < oldest:
                        os.unlink(entry.path)


def _digest(logdirs: Sequence[str]) -> str:
    return sha256("\0".join(logdirs).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _owner(content: bytes) -> str | None:
    """Return who watches, as the file says it; None if it does not."""
    try:
        found: Any = json.loads(content)
        who = f"process {int(found['pid'])} on {printable(str(found['host']))}"
        return f"{who} since {utc_text(float(found['since']))} UTC"
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return None
