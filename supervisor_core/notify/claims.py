"""`Claims`: which of several watchers sends an event, by files in a directory that all of them can write.

A claim is a file, ``<event>-<service>.<number>``. Who creates it owns it, appends a byte before each attempt to send,
and ``sent`` after the last, or ``free`` where it gives up. A claim to which nothing is appended for a while is of a
watcher that has died, or cannot reach the service: another one takes over by creating the file of the next number. No
clocks are compared, and no file is replaced, so that it works on NFS as on a disk.

Beside the claims is, for each list of logdirs, when a watcher has last looked: one that is started again says what has
happened meanwhile.

A file that another user made, or that is none, is no claim: it neither keeps a message back nor holds anybody up.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.log import command_line, error_text
from supervisor_core.base.systems import AS_BYTES, CLOSE_ON_EXEC, NO_FOLLOW, NO_WAIT, user_id
from supervisor_core.notify.secret import Secret
from supervisor_core.run.model.words import DAY_SECS

STATE_VARIABLE = "XDG_STATE_HOME"
"""Environment variable of the system's own directory for states of this user."""
TAKE_OVER_SECS = 180.0
"""After how long without an attempt a claim is taken over: far longer than an attempt takes."""
FORGET_SECS = 30 * DAY_SECS
"""For how long it is known that an event was sent."""

_SENT, _FREE = b"sent", b"free"
_KEY_FILE = "key"
_HEX = "[0-9a-f]{16}"
_OURS = re.compile(rf"{_HEX}-{_HEX}\.[0-9]+|{_KEY_FILE}-{_HEX}|look-{_HEX}(-{_HEX})?")
"""Names of the files that are removed when they are old: the directory may hold others."""
_MOST_BYTES = 1 << 16
_ROUNDS = 200_000

_LOG = logging.getLogger("supervisor_core")

Owner = Literal["mine", "sent", "other"]
"""``mine``: to be sent by this watcher. ``sent``: it was sent. ``other``: another watcher is at it."""


def default_directory() -> Path | None:
    """Return where the claims of this user's watchers are: ``tb-supervisor/notify`` in the directory for states; None
    for a user without a home."""
    state = os.environ.get(STATE_VARIABLE, "")
    try:
        base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return base / "tb-supervisor" / "notify"


@dataclass(slots=True)
class _OtherClaim:
    """What was last seen of a claim that is not this watcher's."""

    number: int
    size: int
    since: float


class Claims:
    """The claims of one watcher. Its methods are for one thread for each service.

    None raises an error: where the directory cannot be used, that is logged once, and every event is this watcher's. It
    is then sent twice, rather than never.

    Args:
        directory: of all watchers; it is created, for this user alone.
        clock: replaced in tests.
    """

    def __init__(self, directory: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._directory, self._clock = directory, clock
        self._is_failing = False
        self._salt: bytes | None = None
        self._cleaned_at = -math.inf
        self._users = {user_id()}
        """Whose the files of this user are: an export may make root another one."""
        self._owned: dict[str, int] = {}
        self._seen: dict[str, _OtherClaim] = {}

    def key(self, identity: Secret) -> str | None:
        """Return what stands for a service in the names of files: a slow hash, by which its URL cannot be guessed. None
        while the directory cannot be used."""
        try:
            if self._salt is None:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                salt = self._shared_salt()
                self._check_owner()
                self._salt = salt
        except OSError as error:
            self._failed(error)
            return None
        text = identity.reveal().encode("utf-8", "backslashreplace")
        return hashlib.pbkdf2_hmac("sha256", text, self._salt, _ROUNDS).hex()[:16]

    def take(self, event_id: str, service: str) -> Owner:
        """Try to own an event, and return who does. Ask again about one of another watcher: it may be taken over.

        Args:
            event_id: the event.
            service: the `key` of the service.
        """
        name = f"{event_id}-{service}"
        if name in self._owned:
            return "mine"
        try:
            owner = self._take(name)
        except OSError as error:
            self._failed(error)
            return "mine"
        self._is_failing = False
        return owner

    def attempt(self, event_id: str, service: str) -> bool:
        """Say that an owned event is about to be sent; return False if another watcher has taken it over."""
        return self._append(f"{event_id}-{service}", b".")

    def sent(self, event_id: str, service: str) -> None:
        """Say that an owned event was sent."""
        name = f"{event_id}-{service}"
        self._append(name, _SENT)
        self._owned.pop(name, None)

    def give_back(self, event_id: str, service: str) -> None:
        """Leave an event to other watchers, and forget it."""
        name = f"{event_id}-{service}"
        self._append(name, _FREE)
        self._owned.pop(name, None)
        self._seen.pop(name, None)

    def last_look(self, watched: str) -> float | None:
        """Return when a watcher has last looked, by its wall clock; None where that is not known.

        Args:
            watched: what it watches.
        """
        try:
            self._check_owner()
            at = float(self._read(self._look_path(watched)))
        except (OSError, ValueError):
            return None
        return at if math.isfinite(at) else None

    def looked(self, watched: str, at: float) -> None:
        """Say that a watcher has looked.

        Args:
            watched: what it watches.
            at: wall time.
        """
        path = self._look_path(watched)
        own = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(self._new(own), "wb") as file:
                file.write(repr(at).encode())
            os.replace(own, path)
        except OSError as error:
            with suppress(OSError):
                own.unlink(missing_ok=True)
            self._failed(error)

    def _look_path(self, watched: str) -> Path:
        return self._directory / f"look-{hashlib.sha256(watched.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"

    def _take(self, name: str) -> Owner:
        self._remove_old()
        number = 0
        while self._path(name, number + 1).exists():
            number += 1
        if self._create(name, number):
            return "mine"
        content = self._read(self._path(name, number))
        if content.endswith(_SENT):
            self._seen.pop(name, None)
            return "sent"
        now, seen = self._clock.monotonic(), self._seen.get(name)
        if seen is None or (seen.number, seen.size) != (number, len(content)):
            seen = self._seen[name] = _OtherClaim(number, len(content), now)
        if now - seen.since < TAKE_OVER_SECS and not content.endswith(_FREE):
            return "other"
        return "mine" if self._create(name, number + 1) else "other"

    def _create(self, name: str, number: int) -> bool:
        """Try to own a claim by creating its file."""
        try:
            os.close(self._new(self._path(name, number)))
        except FileExistsError:
            return False
        self._owned[name] = number
        self._seen.pop(name, None)
        return True

    def _append(self, name: str, data: bytes) -> bool:
        """Append to an owned claim; return False if another watcher has taken it over."""
        number = self._owned.get(name)
        if number is None:  # the directory could not be used
            return True
        try:
            if self._path(name, number + 1).exists():
                del self._owned[name]
                return False
            with open(self._open(self._path(name, number), os.O_WRONLY | os.O_APPEND), "ab") as file:
                file.write(data)
        except OSError as error:
            self._failed(error)
        return True

    def _path(self, name: str, number: int) -> Path:
        return self._directory / f"{name}.{number}"

    def _shared_salt(self) -> bytes:
        """Return bytes that all watchers of the directory have, and no other one."""
        path = self._directory / _KEY_FILE
        own = path.with_name(f"{_KEY_FILE}-{secrets.token_hex(8)}")
        try:
            with open(self._new(own), "wb") as file:
                file.write(secrets.token_bytes(32))
            with suppress(FileExistsError):
                os.link(own, path)  # complete, or not there
        finally:
            own.unlink(missing_ok=True)
        return self._read(path)

    def _check_owner(self) -> None:
        """Raise an error if another user may rename files in the directory: a claim could become that of an event that
        was not sent."""
        from supervisor_core.checkpoint.ownership import others_may_write

        path, found = str(self._directory), os.stat(self._directory)
        if found.st_uid not in {0, *self._users}:
            raise PermissionError(errno.EPERM, f"It belongs to user {found.st_uid}", path)
        if os.name == "posix" and not found.st_mode & stat.S_ISVTX and others_may_write(path, found):
            raise PermissionError(
                errno.EPERM, f"Others may write it: {command_line('chmod', 'go-w', '--', path)}", path
            )

    def _new(self, path: Path) -> int:
        """Return the descriptor of a new file."""
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | CLOSE_ON_EXEC | AS_BYTES, 0o600)
        self._users.add(os.fstat(descriptor).st_uid)
        return descriptor

    def _read(self, path: Path) -> bytes:
        with open(self._open(path, os.O_RDONLY), "rb") as file:
            return file.read(_MOST_BYTES)

    def _open(self, path: Path, flags: int) -> int:
        """Return the descriptor of a file of this user; OSError for any other, and for what is none."""
        descriptor = os.open(path, flags | NO_FOLLOW | NO_WAIT | CLOSE_ON_EXEC | AS_BYTES)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in self._users:
            os.close(descriptor)
            raise PermissionError(errno.EPERM, "It is no file of this user", str(path))
        return descriptor

    def _remove_old(self) -> None:
        """Remove what is forgotten, once a day."""
        now = self._clock.monotonic()
        if now - self._cleaned_at < DAY_SECS:
            return
        self._cleaned_at, oldest = now, time.time() - FORGET_SECS  # of files
        with os.scandir(self._directory) as entries:
            for entry in entries:
                with suppress(OSError):
                    if _OURS.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < oldest:
                        os.unlink(entry.path)

    def _failed(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            _LOG.warning(
                "the directory %s cannot be used, so that each of several watchers of a run sends its messages: %s",
                self._directory,
                error_text(error),
            )
