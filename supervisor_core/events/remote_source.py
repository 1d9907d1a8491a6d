"""Reading events files on remote file systems, through the gfile that is at hand.

The same choice as the writer's (`supervisor_core.events.remote`): TensorFlow's where it is loaded and knows the
scheme, else TensorBoard's, which reaches whatever fsspec has a package for. fsspec itself is asked directly, because it
can list a directory with the kinds of its entries in one request, and because its cached listings must be dropped: a
file that grows would keep its first size.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from supervisor_core.errors import EventsError
from supervisor_core.events.source import Entry


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """See `supervisor_core.events.source.FileStatus`; stores have no inodes."""

    st_size: int
    st_mode: int = stat.S_IFREG
    st_mtime_ns: int = 0
    st_ino: int = 0
    st_dev: int = 0


class _Client(Protocol):
    def size(self, path: str) -> int | None:
        """Return a file's length; None for a directory. Raises whatever the store's library raises."""

    def read(self, path: str, length: int, offset: int) -> bytes: ...

    def list(self, path: str) -> Iterator[Entry]: ...


class _FsspecClient:
    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def size(self, path: str) -> int | None:
        self._filesystem.invalidate_cache()
        info = self._filesystem.info(path)
        return None if info["type"] == "directory" else int(info["size"])

    def read(self, path: str, length: int, offset: int) -> bytes:
        return bytes(self._filesystem.cat_file(path, start=offset, end=offset + length))

    def list(self, path: str) -> Iterator[Entry]:
        own = self._filesystem._strip_protocol(path).rstrip("/")
        for info in self._filesystem.ls(path, detail=True):
            name = info["name"].rstrip("/")
            if name != own:  # a store without directories may list a marker for the directory itself
                yield Entry(name.rpartition("/")[2], info["type"] == "directory", False)


class _TensorBoardClient:
    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def size(self, path: str) -> int | None:
        return None if self._filesystem.isdir(path) else int(self._filesystem.stat(path).length)

    def read(self, path: str, length: int, offset: int) -> bytes:
        return bytes(self._filesystem.read(path, True, length, {"opaque_offset": offset})[0])

    def list(self, path: str) -> Iterator[Entry]:
        for name in self._filesystem.listdir(path):
            name = name.rstrip("/")
            yield Entry(name, bool(self._filesystem.isdir(f"{path.rstrip('/')}/{name}")), False)


class _TensorFlowClient:
    def __init__(self, gfile: Any) -> None:
        self._gfile = gfile

    def size(self, path: str) -> int | None:
        found = self._gfile.stat(path)
        return None if found.is_directory else int(found.length)

    def read(self, path: str, length: int, offset: int) -> bytes:
        with self._gfile.GFile(path, "rb") as file:
            file.seek(offset)
            return bytes(file.read(length))

    def list(self, path: str) -> Iterator[Entry]:
        for name in self._gfile.listdir(path):
            is_directory = name.endswith("/") or self._gfile.isdir(f"{path.rstrip('/')}/{name}")
            yield Entry(name.rstrip("/"), bool(is_directory), False)


class RemoteReadFile:
    """A remote file; each reading is a request of its own, for a range."""

    def __init__(self, source: RemoteSource, path: str) -> None:
        self._source = source
        self._path = path

    def pread(self, length: int, offset: int) -> bytes:
        """See `supervisor_core.events.source.ReadFile`."""
        return self._source.read(self._path, length, offset)

    def close(self) -> None:
        """Do nothing: nothing is held open."""


class RemoteSource:
    """See `supervisor_core.events.source.ReadFileSystem`; whatever a store's library raises becomes ``OSError``."""

    def __init__(self, client: _Client) -> None:
        self._client = client

    def stat(self, path: str) -> RemoteStatus:
        """See `supervisor_core.events.source.ReadFileSystem`."""
        try:
            size = self._client.size(path)
        except Exception as error:
            raise _os_error(error, path) from error
        return RemoteStatus(0, stat.S_IFDIR) if size is None else RemoteStatus(size)

    def open(self, path: str) -> RemoteReadFile:
        """See `supervisor_core.events.source.ReadFileSystem`."""
        return RemoteReadFile(self, path)

    def read(self, path: str, length: int, offset: int) -> bytes:
        """Return a range of a file."""
        try:
            return self._client.read(path, length, offset)
        except Exception as error:
            raise _os_error(error, path) from error

    def list(self, directory: str) -> Iterator[Entry]:
        """See `supervisor_core.events.source.ReadFileSystem`."""
        try:
            yield from self._client.list(directory)
        except Exception as error:
            raise _os_error(error, directory) from error


def _os_error(error: Exception, path: str) -> OSError:
    if isinstance(error, OSError) and error.errno is not None:
        return error
    # TensorFlow's and TensorBoard's NotFoundError and PermissionDeniedError are told by their names: neither is loaded.
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError) or kind == "NotFoundError":
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, PermissionError) or kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return PermissionError(errno.EACCES, str(error), path)
    return OSError(errno.EIO, f"{kind}: {error}", path)


def remote_source(path: str) -> RemoteSource:
    """Return where a path with ``://`` in it is read from.

    Raises:
        EventsError: if no file system for its scheme is installed.
    """
    scheme = path.partition("::")[0].partition("://")[0]
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and scheme in tensorflow.io.gfile.get_registered_schemes():
        return RemoteSource(_TensorFlowClient(tensorflow.io.gfile))
    from tensorboard.compat.tensorflow_stub.io import gfile

    try:
        filesystem = gfile.get_filesystem(path)
        if not isinstance(filesystem, gfile.FSSpecFileSystem):
            return RemoteSource(_TensorBoardClient(filesystem))
        from fsspec.core import url_to_fs

        return RemoteSource(_FsspecClient(url_to_fs(path)[0]))
    except (ImportError, ValueError) as error:
        raise EventsError(
            f"Cannot read events from {path!r}: no file system for {scheme}:// is installed ({error}). Install fsspec "
            f"and its package for {scheme}:// (for gs:// that is gcsfs, for s3:// s3fs), or give a local directory."
        ) from error
