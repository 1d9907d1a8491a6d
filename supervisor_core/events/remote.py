"""Events files on remote file systems, through the gfile that is at hand.

Where TensorFlow is loaded and knows the scheme, through TensorFlow's, so that summaries and checkpoints share one
client and its credentials; everywhere else through TensorBoard's, which reaches whatever fsspec has a package for.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from supervisor_core.errors import EventsError


class _Client(Protocol):
    def exists(self, path: str) -> bool: ...

    def make_dirs(self, path: str) -> None: ...

    def write(self, path: str, data: bytes) -> None: ...

    def append(self, path: str, data: bytes) -> None: ...

    def read(self, path: str) -> bytes: ...

    def size(self, path: str) -> int: ...


class _TensorBoardClient:
    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def exists(self, path: str) -> bool:
        return bool(self._filesystem.exists(path))

    def make_dirs(self, path: str) -> None:
        self._filesystem.makedirs(path)

    def write(self, path: str, data: bytes) -> None:
        self._filesystem.write(path, data, True)

    def append(self, path: str, data: bytes) -> None:
        if not hasattr(self._filesystem, "append"):
            raise NotImplementedError(path)
        self._filesystem.append(path, data, True)

    def read(self, path: str) -> bytes:
        return bytes(self._filesystem.read(path, True)[0])

    def size(self, path: str) -> int:
        return int(self._filesystem.stat(path).length)


class _TensorFlowClient:
    def __init__(self, gfile: Any) -> None:
        self._gfile = gfile

    def exists(self, path: str) -> bool:
        return bool(self._gfile.exists(path))

    def make_dirs(self, path: str) -> None:
        self._gfile.makedirs(path)

    def write(self, path: str, data: bytes) -> None:
        self._put(path, data, "wb")

    def append(self, path: str, data: bytes) -> None:
        self._put(path, data, "ab")

    def read(self, path: str) -> bytes:
        with self._gfile.GFile(path, "rb") as file:
            return bytes(file.read())

    def size(self, path: str) -> int:
        return int(self._gfile.stat(path).length)

    def _put(self, path: str, data: bytes, mode: str) -> None:
        # Opened for each append: an open handle buffers, and a forked child would write the buffer again.
        with self._gfile.GFile(path, mode) as file:
            file.write(data)


class RemoteFile:
    """A file behind a gfile. Each append is a request of its own; where the store cannot append, the whole file is
    rewritten each time, from a copy in memory."""

    def __init__(self, client: _Client, path: str) -> None:
        self._client = client
        self._path = path
        self._whole: bytearray | None = None

    def append(self, chunks: Sequence[bytes]) -> None:
        """See `AppendFile.append`."""
        data = b"".join(chunks)
        if self._whole is None:
            try:
                self._client.append(self._path, data)
                return
            except (NotImplementedError, ValueError):  # how fsspec says that a store cannot append
                self._whole = bytearray(self._client.read(self._path))
        self._client.write(self._path, bytes(self._whole) + data)
        self._whole += data

    def size(self) -> int:
        """See `AppendFile.size`."""
        return self._client.size(self._path)

    def truncate(self, size: int) -> None:
        """Raise: remote files cannot be cut."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), self._path)

    def is_gone(self) -> bool:
        """Return False: asking would cost a request for each append."""
        return False

    def sync(self) -> None:
        """Do nothing: a store that has acknowledged an append has it."""

    def close(self) -> None:
        """Do nothing: nothing is held open."""


class RemoteFileSystem:
    """See `FileSystem`."""

    prompt = False

    def __init__(self, client: _Client) -> None:
        self._client = client

    def make_dirs(self, path: str) -> None:
        """See `FileSystem.make_dirs`."""
        self._client.make_dirs(path)

    def create(self, path: str, data: bytes) -> RemoteFile:
        """See `FileSystem.create`; stores have no exclusive creation, so this asks first and then writes."""
        if self._client.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._client.write(path, data)
        return RemoteFile(self._client, path)

    def replace(self, path: str, data: bytes) -> None:
        """See `FileSystem.replace`."""
        self._client.write(path, data)


def remote_filesystem(path: str) -> RemoteFileSystem:
    """Return the file system of a path with ``://`` in it.

    Raises:
        EventsError: if none is installed for its scheme.
    """
    scheme = path.partition("::")[0].partition("://")[0]
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and scheme in tensorflow.io.gfile.get_registered_schemes():
        return RemoteFileSystem(_TensorFlowClient(tensorflow.io.gfile))
    from tensorboard.compat.tensorflow_stub.io import gfile

    try:
        return RemoteFileSystem(_TensorBoardClient(gfile.get_filesystem(path)))
    except (ImportError, ValueError) as error:
        raise EventsError(
            f"Cannot write events to {path!r}: no file system for {scheme}:// is installed ({error}). Install fsspec "
            f"and its package for {scheme}:// (for gs:// that is gcsfs, for s3:// s3fs), or give a local directory."
        ) from error
