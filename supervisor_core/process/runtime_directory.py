"""`private_directory`: a directory in memory for what must be readable while a process, or its disk, hangs.

It holds ``<session id>.page`` and ``<session id>.stacks``. Only its user may write there, so that a reader may believe
what it finds, and a writer is led nowhere else by a link.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from supervisor_core.log import command_line

VARIABLE = "SUPERVISOR_RUNTIME_DIR"
"""Environment variable that names the directory; it is created if it is missing."""

_MEMORY = "/dev/shm"


def private_directory() -> Path:
    """Return the directory of this user, created if it is missing, mode 0700.

    The one that ``SUPERVISOR_RUNTIME_DIR`` names; else ``/dev/shm/tb-supervisor-<uid>``, which is memory; else the same
    name in the directory for temporary files.

    Raises:
        OSError: if there is none that can be created, or that only this user can write to; says why.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return _checked(os.path.abspath(named))
    name = f"tb-supervisor-{os.geteuid()}"
    try:
        return _checked(os.path.join(_MEMORY, name))
    except OSError:
        return _checked(os.path.join(tempfile.gettempdir(), name))


def _checked(path: str) -> Path:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{path} is a link or a file, not a directory: remove it, or set {VARIABLE}.")
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}: set {VARIABLE}.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        remedy = command_line("chmod", "700", "--", path)
        raise PermissionError(f"{path} can be written by others (mode {mode:o}): `{remedy}`, or set {VARIABLE}.")
    return Path(path)
