"""What macOS and Windows lack: what reads a logdir works there, and each difference that it meets is in here.

Trainings need Linux or macOS, and ``tb-supervisor run`` needs Linux: their modules use what those have as it is.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

IS_WINDOWS = sys.platform == "win32"
POSIX_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty")
"""Modules that Windows does not have."""

CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)
AS_BYTES = getattr(os, "O_BINARY", 0)
"""Windows opens files as text otherwise."""
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""0 where nothing keeps an open from following a link: look for one before."""
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""An open waits for no other end of a pipe, and takes no terminal."""
FOLDER = getattr(os, "O_DIRECTORY", 0)

_SEEKING = threading.Lock()


def user_id() -> int:
    """Return this process's user; 0, which every file belongs to there, on Windows."""
    return os.geteuid() if hasattr(os, "geteuid") else 0


def new_file_mode() -> int:
    """Return the mode of the files that this process makes."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def user_name(number: int) -> str | None:
    """Return the name of a user; None where there is none."""
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return None


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Return at most ``length`` bytes from ``offset`` of an open file, as ``os.pread``."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, offset)
    with _SEEKING:  # threads share a descriptor's place
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)


def after_fork_in_child(call: Callable[[], None]) -> None:
    """Have a function called in each forked child; Windows has none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def free_bytes(directory: str) -> int:
    """Return the bytes that an ordinary user may still write to the file system of a directory.

    Raises:
        OSError: if it does not say.
    """
    if hasattr(os, "statvfs"):
        disk = os.statvfs(directory)
        return disk.f_bavail * disk.f_frsize
    import shutil

    return shutil.disk_usage(directory).free
