"""Object stores and other remote file systems, through the gfile at hand.

Checkpoints (`RemoteFilesystem`): where tensorflow is loaded (a training), TensorBoard's gfile is tensorflow's own,
which reads and writes. Where it is not (a monitoring host), it is TensorBoard's stand-in (fsspec, boto3), with which
checkpoints can be read and verified; there nothing can be deleted.

Events (`RemoteAppendFilesystem`): where tensorflow is loaded and knows the scheme, tensorflow's, so that summaries and
checkpoints share one client and its credentials; everywhere else TensorBoard's, which supports every store for which
fsspec has a package.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

from supervisor_core.errors import EventsError, SupervisorError
from supervisor_core.storage.local import Check, Reader, unguarded
from supervisor_core.storage.opening import MAX_READ_BYTES, too_long

READ_AHEAD_BYTES = 8 << 20
"""The least size of a request to a remote store: a round trip costs more than a megabyte."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The canonical status codes, as tensorflow's errors and TensorBoard's stand-ins both carry them.
_ERRNO_OF_CODE = {5: errno.ENOENT, 6: errno.EEXIST, 7: errno.EACCES, 8: errno.ENOSPC, 12: errno.ENOTSUP}


def _as_os_error(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Turn the exceptions of a file system's client into the equivalent `OSError`."""

    @functools.wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except (OSError, SupervisorError):
            raise
        except Exception as error:  # clients of object stores share no base class
            code = getattr(error, "error_code", None)
            path = next((value for value in args if isinstance(value, str)), None)
            text = getattr(error, "message", None) or str(error) or type(error).__name__
            raise OSError(_ERRNO_OF_CODE.get(code or 0, errno.EIO), text, path) from error

    return wrapped


class RemoteFilesystem:
    """See `Filesystem`; the paths keep their scheme."""

    def __init__(self) -> None:
        if "tensorflow" in sys.modules:
            from tensorboard.compat import tf

            self._gfile: Any = tf.io.gfile
            self._full = True
        else:
            from tensorboard.compat.tensorflow_stub.io import gfile

            self._gfile = gfile
            self._full = False

    @_as_os_error
    def list_names(self, directory: str) -> list[str]:
        """See `Filesystem.list_names`."""
        return [name.rstrip("/") for name in self._gfile.listdir(directory)]

    def walk(self, top: str, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, list[str]]]:
        """See `Filesystem.walk`."""
        try:
            yield from _as_os_error(self._walk)(top)
        except OSError as error:
            on_error(error)

    def _walk(self, top: str) -> list[tuple[str, list[str]]]:
        return [(directory, sorted(files)) for directory, _, files in self._gfile.walk(top)]

    @_as_os_error
    def is_file(self, path: str) -> bool:
        """See `Filesystem.is_file`."""
        return bool(self._gfile.exists(path)) and not self._gfile.isdir(path)

    @_as_os_error
    def open(self, path: str) -> Reader:
        """See `Filesystem.open`."""
        size = int(self._gfile.stat(path).length)
        if self._full:
            file = self._gfile.GFile(path, "rb")

            def read_full(offset: int, length: int) -> bytes:
                file.seek(offset)
                return bytes(file.read(length))

            return _RemoteReader(size, read_full, file.close)
        filesystem = self._gfile.get_filesystem(path)

        def read_stand_in(offset: int, length: int) -> bytes:
            data, _ = filesystem.read(path, True, length, {"opaque_offset": offset})
            return bytes(data)

        return _RemoteReader(size, read_stand_in, lambda: None)

    @_as_os_error
    def read(self, path: str) -> bytes:
        """See `Filesystem.read`."""
        with self._gfile.GFile(path, "rb") as file:
            data = bytes(file.read(MAX_READ_BYTES + 1))
        if len(data) > MAX_READ_BYTES:
            raise too_long(path)
        return data

    @_as_os_error
    def replace(self, path: str, data: bytes, check: Check = unguarded) -> None:
        """See `Filesystem.replace`; an object store replaces atomically, others by a rename."""
        if not self._full:
            check()
            with self._gfile.GFile(path, "wb") as file:
                file.write(data)
            return
        temporary = f"{path}.tmp{uuid.uuid4().hex}"
        with self._gfile.GFile(temporary, "wb") as file:
            file.write(data)
        try:
            check()
        except BaseException:
            self._gfile.remove(temporary)
            raise
        self._gfile.rename(temporary, path, overwrite=True)

    def sync(self, paths: Iterable[str], directory: str) -> None:
        """Return at once: a remote file is durable when its writer has closed it."""

    @_as_os_error
    def remove(self, path: str) -> None:
        """See `Filesystem.remove`."""
        self._require_full("delete", path)
        self._gfile.remove(path)

    @_as_os_error
    def remove_tree(self, path: str) -> None:
        """See `Filesystem.remove_tree`."""
        self._require_full("delete", path)
        self._gfile.rmtree(path)

    @_as_os_error
    def move(self, path: str, target: str) -> None:
        """See `Filesystem.move`; an object store copies it, then deletes the first."""
        self._require_full("rename", path)
        self._gfile.rename(path, target, overwrite=True)

    @_as_os_error
    def make_directory(self, path: str) -> None:
        """See `Filesystem.make_directory`."""
        self._gfile.makedirs(path)

    @_as_os_error
    def modified_at(self, path: str) -> float | None:
        """See `Filesystem.modified_at`."""
        nanoseconds = getattr(self._gfile.stat(path), "mtime_nsec", 0)
        return nanoseconds / 1e9 if nanoseconds else None

    @_as_os_error
    def now_in(self, directory: str) -> float | None:
        """See `Filesystem.now_in`."""
        if not self._full:
            return None
        probe = os.path.join(directory, f".supervisor.probe{uuid.uuid4().hex}")
        with self._gfile.GFile(probe, "wb") as file:
            file.write(b"\n")
        try:
            return self.modified_at(probe)
        finally:
            self._gfile.remove(probe)

    def contains(self, directory: str, path: str) -> bool:
        """See `Filesystem.contains`; by the names alone, as these file systems have no symbolic links."""
        return path.startswith(directory.rstrip("/") + "/") and ".." not in path.split("/")

    def _require_full(self, verb: str, path: str) -> None:
        if not self._full:
            raise OSError(errno.ENOTSUP, f"cannot {verb} without tensorflow", path)


class _RemoteReader:
    def __init__(self, size: int, read: Callable[[int, int], bytes], close: Callable[[], None]) -> None:
        self.size = size
        self.is_linked = False
        self._read = _as_os_error(read)
        self._close = close
        self._start = 0
        self._block = b""

    def read_at(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self.size - offset))
        end = offset + length
        if not self._start <= offset or end > self._start + len(self._block):
            self._start = offset
            self._block = self._read(offset, min(max(length, READ_AHEAD_BYTES), self.size - offset)) if length else b""
        return self._block[offset - self._start : end - self._start]

    def __enter__(self) -> _RemoteReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


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


class RemoteAppendFile:
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


class RemoteAppendFilesystem:
    """See `AppendFilesystem`."""

    prompt = False

    def __init__(self, client: _Client) -> None:
        self._client = client

    def make_directory(self, path: str) -> None:
        """See `AppendFilesystem.make_directory`."""
        self._client.make_dirs(path)

    def create(self, path: str, data: bytes) -> RemoteAppendFile:
        """See `AppendFilesystem.create`; stores have no exclusive creation, so this asks first and then writes."""
        if self._client.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._client.write(path, data)
        return RemoteAppendFile(self._client, path)

    def replace(self, path: str, data: bytes) -> None:
        """See `AppendFilesystem.replace`."""
        self._client.write(path, data)


def remote_append_filesystem(path: str) -> RemoteAppendFilesystem:
    """Return the file system of a path with ``://`` in it.

    Raises:
        EventsError: if none is installed for its scheme.
    """
    gfile = tensorflow_gfile(path)
    if gfile is not None:
        return RemoteAppendFilesystem(_TensorFlowClient(gfile))
    return RemoteAppendFilesystem(_TensorBoardClient(tensorboard_filesystem(path, "write events to")))


def scheme_of(path: str) -> str:
    """Return the scheme of a remote path; of a chained one (``simplecache::gs://...``) the first."""
    return path.partition("::")[0].partition("://")[0]


def tensorflow_gfile(path: str) -> Any | None:
    """Return TensorFlow's gfile; None where TensorFlow is not loaded or does not know the path's scheme."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or scheme_of(path) not in tensorflow.io.gfile.get_registered_schemes():
        return None
    return tensorflow.io.gfile


def tensorboard_filesystem(path: str, task: str) -> Any:
    """Return TensorBoard's own file system of a path.

    Args:
        path: one with ``://`` in it.
        task: for the error's text: what the path is for.

    Raises:
        EventsError: if none is installed for its scheme; the text names the package to install.
    """
    from tensorboard.compat.tensorflow_stub.io import gfile

    try:
        return gfile.get_filesystem(path)
    except (ImportError, ValueError) as error:
        scheme = scheme_of(path)
        raise EventsError(
            f"Cannot {task} {path!r}: no file system for {scheme}:// is installed ({error}). Install fsspec "
            f"and its package for {scheme}:// (for gs:// that is gcsfs, for s3:// s3fs), or give a local directory."
        ) from error
