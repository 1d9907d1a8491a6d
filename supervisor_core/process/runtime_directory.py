"""`private_directory`: a directory in memory for what must be readable while a process, or its disk, hangs.

It holds ``<session id>.page`` and ``<session id>.stacks``. Only its user may write there, so that a reader may believe
what it finds, and a writer is led nowhere else by a link. Other users may write where it is created; none of them can
keep a session from having one, by taking its name first.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from supervisor_core.base.log import command_line, error_text
from supervisor_core.base.systems import AS_BYTES, CLOSE_ON_EXEC, NO_FOLLOW, NO_WAIT, user_id

VARIABLE = "SUPERVISOR_RUNTIME_DIR"
"""Environment variable that names the directory; it is created if it is missing."""
XDG_VARIABLE = "XDG_RUNTIME_DIR"
"""Environment variable of the system's own directory in memory for this user."""
MOST_NAMES = 1000
"""How many random names are looked at, which others may have filled a directory with."""

_MEMORY = "/dev/shm"
_SHARED: tuple[Callable[[], str], ...] = (lambda: _MEMORY, tempfile.gettempdir)
"""Return the directories to which all users may write, best first."""


def private_directory(on_refused: Callable[[OSError], object] = lambda error: None) -> Path:
    """Return the directory of this user, created if it is missing, mode 0700.

    The first of these that can be had: the one that ``SUPERVISOR_RUNTIME_DIR`` names; ``tb-supervisor`` in
    ``XDG_RUNTIME_DIR``, if that is this user's alone; ``tb-supervisor-<uid>`` in ``/dev/shm``, which is memory, and in
    the directory for temporary files. Where another user has that name, it gets a random ending.

    Args:
        on_refused: called with the reason if the directory that the variable names is not used.

    Raises:
        OSError: if there is none that can be created, or that only this user can write to; says why.
    """
    refused: list[OSError] = []
    for candidate in _candidates():
        try:
            found = candidate()
        except OSError as error:
            refused.append(error)
            continue
        if os.environ.get(VARIABLE) and refused:  # the variable's is the first candidate
            on_refused(refused[0])
        return found
    raise OSError("; ".join(dict.fromkeys(map(error_text, refused))))


def private_directories() -> list[Path]:
    """Return those that there are, for who reads: another process of this user may have chosen with other variables."""
    paths = [os.path.abspath(named)] if (named := os.environ.get(VARIABLE)) else []
    paths += [xdg] if (xdg := _xdg_directory()) else []
    for get in _SHARED:
        with contextlib.suppress(OSError):
            shared = get()
            paths += [_name_in(shared), *_random_in(shared)]
    found = []
    for path in dict.fromkeys(paths):
        with contextlib.suppress(OSError):
            _check(path)
            found.append(Path(path))
    return found


def _candidates() -> Iterator[Callable[[], Path]]:
    if named := os.environ.get(VARIABLE):
        yield lambda: _checked(os.path.abspath(named))
    if xdg := _xdg_directory():
        yield partial(_checked, xdg)
    for get in _SHARED:
        yield partial(_in_shared, get)


def _xdg_directory() -> str | None:
    """Return the one in the system's own; None where that is missing, somebody else's, or not private."""
    base = os.environ.get(XDG_VARIABLE, "")
    with contextlib.suppress(OSError):
        if os.path.isabs(base) and not os.lstat(base).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            _check(base)
            return os.path.join(base, "tb-supervisor")
    return None


def _name_in(shared: str) -> str:
    return os.path.join(shared, f"tb-supervisor-{user_id()}")


def _in_shared(get: Callable[[], str]) -> Path:
    """Return the directory in one to which all users may write."""
    shared = get()
    try:
        return _checked(_name_in(shared))
    except OSError:
        if not os.path.lexists(_name_in(shared)):
            raise
    for path in _random_in(shared):
        with contextlib.suppress(OSError):
            _check(path)
            return Path(path)
    return Path(tempfile.mkdtemp(prefix=f"tb-supervisor-{user_id()}-", dir=shared))


def _random_in(shared: str) -> Iterator[str]:
    """Yield the names with a random ending, whoever has made them, where somebody has taken the usual name."""
    with contextlib.suppress(OSError):
        _check(_name_in(shared))
        return
    if os.path.lexists(_name_in(shared)):
        start = os.path.basename(_name_in(shared)) + "-"
        with contextlib.suppress(OSError), os.scandir(shared) as entries:
            yield from islice((entry.path for entry in entries if entry.name.startswith(start)), MOST_NAMES)


def _checked(path: str) -> Path:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    _check(path)
    return Path(path)


def _check(path: str) -> None:
    check_own(path, f"set {VARIABLE}")


def check_own(path: str, otherwise: str, *, is_secret: bool = False) -> None:
    """Check that a directory is this user's, and that no other user can write to it.

    Args:
        otherwise: what to do instead of repairing it, for the error.
        is_secret: whether others may not read it, either.

    Raises:
        OSError: if it is not; says what to do.
    """
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{path} is a link or a file, not a directory: remove it, or {otherwise}")
    if found.st_uid != user_id():
        raise PermissionError(f"{path} belongs to user {found.st_uid}, not to {user_id()}: {otherwise}")
    refused = stat.S_IRWXG | stat.S_IRWXO if is_secret else stat.S_IWGRP | stat.S_IWOTH
    if os.name == "posix" and found.st_mode & refused:
        what, mode = "read or written" if is_secret else "written", stat.S_IMODE(found.st_mode)
        remedy = command_line("chmod", "700", "--", path)
        raise PermissionError(f"{path} can be {what} by others (mode {mode:o}): `{remedy}`, or {otherwise}")


def read_regular(path: str | os.PathLike[str], most_bytes: int) -> bytes | None:
    """Return the first bytes of an ordinary file; None of anything else, and of what cannot be read.

    Raises nothing, opens no link and waits for nothing: the path may come from others. Not mapped: who cuts a mapped
    file kills its reader. The kernel copies aligned values as a whole.
    """
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # opening a device can have effects
            return None
        descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW | NO_WAIT | CLOSE_ON_EXEC | AS_BYTES)
        try:
            return os.read(descriptor, most_bytes) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None
