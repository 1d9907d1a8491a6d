"""Where events files live: the few operations a writer needs, and the local implementation.

A path with ``://`` in it is remote and goes through TensorBoard's gfile (`supervisor_core.events.remote`), which is
loaded only then; every other path is local and needs nothing but ``os``.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import uuid
from collections.abc import Sequence
from typing import Protocol

_LOG = logging.getLogger("supervisor_core")

_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EROFS)


class AppendFile(Protocol):
    """One open file that only grows. Methods raise ``OSError`` (a remote one: whatever its client raises)."""

    def append(self, chunks: Sequence[bytes]) -> None:
        """Append all chunks; when it raises, any part of them may have been appended."""

    def size(self) -> int:
        """Return the file's present length in bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes; raises where the file system cannot."""

    def is_gone(self) -> bool:
        """Say whether the file was deleted, so that appending to it would be in vain."""

    def sync(self) -> None:
        """Return when everything appended would survive a power cut, as far as the file system can promise it."""

    def close(self) -> None:
        """Close the file; it buffers nothing, so nothing is lost."""


class FileSystem(Protocol):
    """Makes append-only files. Injected, so that a test can run out of disk."""

    prompt: bool
    """True where appending is cheap, so that events are appended as they come; False where each append is a request
    over a network, so that they are gathered for ``flush_secs``."""

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents; it may exist."""

    def create(self, path: str, data: bytes) -> AppendFile:
        """Create a file that begins with ``data``.

        Raises:
            FileExistsError: if something has that name; nothing else is ever overwritten.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Write a whole file, over any earlier one."""


class LocalFile:
    """A local file, appended with plain ``write`` calls: what has been appended survives a SIGKILL."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._directory_synced = False

    def append(self, chunks: Sequence[bytes]) -> None:
        """See `AppendFile.append`."""
        for chunk in chunks:
            sent = os.write(self._descriptor, chunk)
            while sent < len(chunk):  # a short write: the next one says why
                sent += os.write(self._descriptor, memoryview(chunk)[sent:])

    def size(self) -> int:
        """See `AppendFile.size`."""
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """See `AppendFile.truncate`."""
        os.ftruncate(self._descriptor, size)

    def is_gone(self) -> bool:
        """See `AppendFile.is_gone`."""
        return os.fstat(self._descriptor).st_nlink == 0

    def sync(self) -> None:
        """See `AppendFile.sync`; the first time the directory too, since a synced file without a name is lost."""
        try:
            os.fsync(self._descriptor)
            if not self._directory_synced:
                directory = os.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(directory)
                finally:
                    os.close(directory)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise
            if not self._directory_synced:
                _LOG.info("The file system of %s cannot sync (%s); flushing has to do.", self._path, error.strerror)
        self._directory_synced = True

    def close(self) -> None:
        """See `AppendFile.close`."""
        os.close(self._descriptor)


class LocalFileSystem:
    """The operating system's files."""

    prompt = True

    def make_dirs(self, path: str) -> None:
        """See `FileSystem.make_dirs`."""
        os.makedirs(path, exist_ok=True)

    def create(self, path: str, data: bytes) -> LocalFile:
        """See `FileSystem.create`; leaves no empty file behind when the disk is full."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        file = LocalFile(path, os.open(path, flags, 0o666))
        try:
            file.append((data,))
        except OSError:
            with contextlib.suppress(OSError):  # the first error is raised
                file.close()
                os.unlink(path)
            raise
        return file

    def replace(self, path: str, data: bytes) -> None:
        """See `FileSystem.replace`."""
        temporary = f"{path}.tmp{uuid.uuid4().hex}"  # a new file: what the name may be a link to stays as it is
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


LOCAL: FileSystem = LocalFileSystem()


def filesystem_of(path: str) -> FileSystem:
    """Return the file system of a path: local, or by what stands in front of its ``://``.

    Raises:
        EventsError: if no file system for it is installed; the text says which package brings it.
    """
    if "://" not in path:
        return LOCAL
    from supervisor_core.events.remote import remote_filesystem

    return remote_filesystem(path)


def join(directory: str, name: str) -> str:
    """Return the path of an entry of a directory, local or remote."""
    return directory.rstrip("/") + "/" + name if "://" in directory else os.path.join(directory, name)
