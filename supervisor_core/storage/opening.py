"""How local files are opened.

`open_regular`: a FIFO, a device or a directory in place of a file is an error at once. Files that are written in place
are opened by `open_own`, and those of sealed checkpoints by `open_below`, which follow no link: anybody with access to
a logdir may put a link there to a file that only the reader may write, or read.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

from supervisor_core.base.systems import AS_BYTES, CLOSE_ON_EXEC, FOLDER, NO_FOLLOW, NO_WAIT

OPEN_FLAGS = CLOSE_ON_EXEC | AS_BYTES | NO_WAIT
FOLDER_FLAGS = os.O_RDONLY | FOLDER | NO_FOLLOW | CLOSE_ON_EXEC
_HAS_FOLDERS = os.open in os.supports_dir_fd
_KINDS = {
    stat.S_IFDIR: "it is a directory",
    stat.S_IFIFO: "it is a FIFO",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}

MAX_READ_BYTES = 4 << 20
"""Limit of a file that is read as a whole: a state file that lists 30,000 checkpoints has 4 MB."""


def open_regular(path: str, flags: int = os.O_RDONLY, folder: int | None = None, mode: int = 0o666) -> int:
    """Open a local file and return its descriptor, without waiting for the other end of a FIFO, or a device.

    Args:
        path: the file; symbolic links are followed.
        flags: those of `os.open`; those that keep it from waiting are added.
        folder: descriptor of the directory from where a relative path counts; None for the working directory.
        mode: of a file that is created.

    Raises:
        OSError: if it cannot be opened, or is no regular file; its ``strerror`` then names its kind.
    """
    try:
        fd = os.open(path, flags | OPEN_FLAGS, mode, dir_fd=folder)
    except PermissionError as error:  # how Windows refuses a directory
        if folder is None and os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, _refusal(stat.S_IFDIR), path) from error
        raise
    kind = stat.S_IFMT(os.fstat(fd).st_mode)
    if kind == stat.S_IFREG:
        return fd
    os.close(fd)
    code = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
    raise OSError(code, _refusal(kind), path)


def _refusal(kind: int) -> str:
    return f"{_KINDS.get(kind, 'it is special')}, not a regular file"


def open_unlinked(path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a local file and return its descriptor; like `open_regular`, but follow no link.

    Raises:
        OSError: also if the name is a symbolic link, with the code ``ELOOP``.
    """
    if not NO_FOLLOW and os.path.islink(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return open_regular(path, flags | NO_FOLLOW, mode=mode)


def open_below(directory: str, name: str) -> int:
    """Open a file below a local directory for reading, and return its descriptor; like `open_regular`, without links.

    Args:
        name: the file's path in it, with slashes.

    Raises:
        OSError: also if the directory, a folder in between or the file is a symbolic link.
    """
    *folders, last = name.split("/")
    path = os.path.join(directory, name)
    if not _HAS_FOLDERS:
        return _open_below_by_path(directory, name)
    folder: int | None = None
    try:
        for part in (directory.rstrip("/") or "/", *folders):
            try:
                inner = os.open(part, FOLDER_FLAGS, dir_fd=folder)
            except NotADirectoryError as error:
                what = f"{part} is a symbolic link, or a file; a directory was expected"
                raise NotADirectoryError(errno.ENOTDIR, what, path) from error
            if folder is not None:
                os.close(folder)
            folder = inner
        return open_regular(last, os.O_RDONLY | NO_FOLLOW, folder)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "it is a symbolic link; a file was expected", path) from error
    finally:
        if folder is not None:
            os.close(folder)


def _open_below_by_path(directory: str, name: str) -> int:
    """Do that where no open counts from a directory: who can replace one meanwhile is not kept from it."""
    path = directory
    for part in ("", *name.split("/")):
        path = os.path.join(path, part) if part else path
        if os.path.islink(path):
            raise OSError(errno.ELOOP, f"{part or path} is a symbolic link", os.path.join(directory, name))
    return open_regular(path)


def open_own(path: str, flags: int) -> int:
    """Open a local file to write it in place, and return its descriptor; like `open_regular`, but follow no link.

    Raises:
        OSError: also if the name is a symbolic link, or the file has other names; its ``strerror`` then says so.
    """
    try:
        fd = open_unlinked(path, flags)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "it is a symbolic link, which is not written through", path) from error
    names = os.fstat(fd).st_nlink
    if names <= 1:  # 0: it was deleted since
        return fd
    os.close(fd)
    raise OSError(errno.EMLINK, f"it has {names} names (hard links), so it may be another's file", path)


def is_wrong_kind(error: OSError) -> bool:
    """Return whether an error means: this is no file that is read, and never will be. Any other one may pass."""
    return error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG, errno.EFBIG)


def read_whole(file: Any, path: str) -> bytes:
    """Return the content of an open file.

    Raises:
        OSError: if it has more than `MAX_READ_BYTES`.
    """
    data = bytes(file.read(MAX_READ_BYTES + 1))
    if len(data) > MAX_READ_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_READ_BYTES:,} bytes", path)
    return data
