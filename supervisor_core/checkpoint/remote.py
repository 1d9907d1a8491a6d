"""`RemoteFilesystem`: object stores and other file systems, through TensorBoard's gfile.

Where tensorflow is loaded (a training), TensorBoard's gfile is tensorflow's own, which reads and writes. Where it is
not (a monitoring host), it is TensorBoard's stand-in (fsspec, boto3), with which checkpoints can be read and verified;
there nothing can be deleted.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from supervisor_core.checkpoint.filesystem import MAX_READ_BYTES, Check, Reader, too_long, unguarded
from supervisor_core.errors import SupervisorError

READ_AHEAD_BYTES = 8 << 20
"""Each request to a remote store asks for at least so much: a round trip costs more than a megabyte does."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The canonical status codes, as tensorflow's errors and TensorBoard's stand-ins both carry them.
_ERRNO_OF_CODE = {5: errno.ENOENT, 6: errno.EEXIST, 7: errno.EACCES, 8: errno.ENOSPC, 12: errno.ENOTSUP}


def _as_os_error(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Turn whatever a file system's client raises into the `OSError` that says the same."""

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
    """See `supervisor_core.checkpoint.filesystem.Filesystem`; the paths keep their scheme."""

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
        """See `Filesystem.replace`; an object store replaces at one stroke, others by a rename."""
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
