"""Local trees of directories, which may be nested deeper than Python's stack, or than a path is long: somebody else may
have made them."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator

from supervisor_core.storage.opening import FOLDER_FLAGS

_TOO_DEEP = (errno.EMFILE, errno.ENAMETOOLONG)
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


def remove_tree(path: str) -> None:
    """Delete a directory with its content, however deep; follow no symbolic link.

    Raises:
        OSError: if it is none, or something in it cannot be deleted.
    """
    try:
        shutil.rmtree(path)
        return
    except (RecursionError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _TOO_DEEP:
            raise
    top = os.open(path, FOLDER_FLAGS)
    try:
        folders = _remove_files(top)
        while folders:  # the folders in each come up beside it, so that nothing is deeper than that
            name = folders.pop()
            inner = os.open(name, FOLDER_FLAGS, dir_fd=top)
            try:
                for child in _remove_files(inner):
                    beside = uuid.uuid4().hex
                    os.rename(child, beside, src_dir_fd=inner, dst_dir_fd=top)
                    folders.append(beside)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _remove_files(folder: int) -> list[str]:
    """Delete what is no directory, or an empty one; return the names of the others."""
    with os.scandir(folder) as found:
        entries = list(found)
    left = []
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=folder)
            continue
        try:
            os.rmdir(entry.name, dir_fd=folder)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            left.append(entry.name)
    return left


def walk(top: str, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, list[str]]]:
    """Yield each directory from ``top`` down, with the names of its files; see `Filesystem.walk`."""
    seen: set[tuple[int, int]] = set()
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as found:
                kinds = {entry.name: is_directory(entry) for entry in found}
            status = os.stat(directory)
        except OSError as error:
            on_error(error)
            continue
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            continue
        seen.add(identity)
        names = sorted(kinds)
        yield directory, [name for name in names if not kinds[name]]
        waiting += [os.path.join(directory, name) for name in reversed(names) if kinds[name]]


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Say whether an entry is a directory, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a symbolic link that leads in a circle, or nowhere one may look
        return False
