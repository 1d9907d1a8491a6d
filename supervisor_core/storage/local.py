"""The interfaces of the file layer, and local files; for checkpoints (`Filesystem`) and events (`AppendFilesystem`).
Those of reading what grows are in `source`.

Local paths (``file://`` too, for checkpoints) go straight to the operating system. All others (``gs://``, ``s3://``,
``memory://``) go through TensorBoard's gfile, which is loaded only then (`remote`). Failures of a `Filesystem` raise
`OSError`, with Python's subclasses for a missing file, a missing permission and so on.
Local files are opened by `opening` alone.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from supervisor_core.storage import trees
from supervisor_core.storage.directory import moved_text, path_now, time_in
from supervisor_core.storage.opening import MAX_READ_BYTES, OPEN_FLAGS, open_regular, too_long
from supervisor_core.storage.source import DirectoryEntry, ReadFile

_LOG = logging.getLogger("supervisor_core")

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EROFS)

Check = Callable[[], None]
"""Called immediately before a change takes effect. Raises `LogdirInUseError` if another chief has taken the logdir
over, and `OSError` if that is unknown: then try again later. See `supervisor_core.checkpoint.guard`."""


def unguarded() -> None:
    """The check where there can be no other chief: passes."""


class Reader(ReadFile, Protocol):
    """One file, open for reading at any offset; leaving its ``with`` closes it."""

    size: int
    """The file's length in bytes when it was opened."""
    is_linked: bool
    """Whether its name is a symbolic link: it may be any file that this process may read."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Filesystem(Protocol):
    """The part of a file system that checkpoints need; paths as the user gave them. Every failure is an `OSError`."""

    def list_names(self, directory: str) -> list[str]:
        """Return the names of a directory's entries, in no particular order."""

    def walk(self, top: str, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, list[str]]]:
        """Yield each directory from ``top`` down, with the names of its files; follows symbolic links, each once."""

    def is_file(self, path: str) -> bool:
        """Say whether there is a file; a directory is none."""

    def open(self, path: str) -> Reader:
        """Open a file for reading."""

    def read(self, path: str) -> bytes:
        """Return a whole (small) file; one of more than `MAX_READ_BYTES` is an `OSError`."""

    def replace(self, path: str, data: bytes, check: Check = unguarded) -> None:
        """Put ``data`` in place of the file, atomically and durably: a crash leaves the old or the new one.

        ``check`` is called immediately before that takes effect; if it raises, the old file stays.
        """

    def sync(self, paths: Iterable[str], directory: str) -> None:
        """Make these files and the directory's entries survive a power cut."""

    def remove(self, path: str) -> None:
        """Delete one file (of a symbolic link: the link)."""

    def remove_tree(self, path: str) -> None:
        """Delete a directory with its content; follows no symbolic link."""

    def move(self, path: str, target: str) -> None:
        """Rename a file, atomically where the file system can."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents where they are missing."""

    def modified_at(self, path: str) -> float | None:
        """Return when a file was last written, by the file system's clock; None where unknown."""

    def now_in(self, directory: str) -> float | None:
        """Return the present time by the file system's own clock, which need not be this machine's."""

    def contains(self, directory: str, path: str) -> bool:
        """Say whether ``path`` lies below ``directory``, symbolic links in its directories resolved."""


class AppendFile(Protocol):
    """One open file that only grows. Methods raise ``OSError`` (a remote one: whatever its client raises)."""

    def append(self, chunks: Sequence[bytes]) -> None:
        """Append all chunks; when it raises, any part of them may have been appended."""

    def size(self) -> int:
        """Return the file's present length in bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes; raises where the file system cannot."""

    def is_gone(self) -> bool:
        """Say whether the file was deleted or renamed, so that what is appended to it would not be found.

        Raises:
            OSError: if its directory is not there: it may come back, with the file.
        """

    def sync(self) -> None:
        """Return when everything appended would survive a power cut, as far as the file system can promise it."""

    def close(self) -> None:
        """Close the file; it buffers nothing, so nothing is lost."""


class AppendFilesystem(Protocol):
    """The part of a file system that a writer of events needs. Injected, so that a test can run out of disk."""

    prompt: bool
    """True where appending is cheap, so that events are appended as they come; False where each append is a request
    over a network, so that they are gathered for ``flush_secs``."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents where they are missing."""

    def create(self, path: str, data: bytes) -> AppendFile:
        """Create a file that begins with ``data``.

        Raises:
            FileExistsError: if something has that name; nothing else is ever overwritten.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Put ``data`` in place of the file."""


class LocalFilesystem:
    """The operating system's files; a `Filesystem`, an `AppendFilesystem` and a `ReadFileSystem`."""

    prompt = True
    stat = staticmethod(os.stat)
    walk = staticmethod(trees.walk)
    remove_tree = staticmethod(trees.remove_tree)

    def list_names(self, directory: str) -> list[str]:
        """See `Filesystem.list_names`."""
        return os.listdir(directory)

    def entries(self, directory: str) -> Iterator[DirectoryEntry]:
        """See `ReadFileSystem.entries`."""
        with os.scandir(directory) as entries:
            for entry in entries:
                is_directory, is_link = trees.is_directory(entry), entry.is_symlink()
                owner = _owner(entry) if is_link and is_directory else None
                yield DirectoryEntry(entry.name, is_directory, is_link, owner)

    def is_file(self, path: str) -> bool:
        """See `Filesystem.is_file`; an inaccessible path counts as a file, so that reading it raises the reason."""
        try:
            return not os.path.isdir(path) and bool(os.stat(path))
        except FileNotFoundError:
            return os.path.islink(path)
        except NotADirectoryError:
            return False
        except OSError:
            return True

    def open(self, path: str) -> Reader:
        """See `Filesystem.open`; waits for no device and no other end of a pipe, and opens nothing but a file."""
        return _LocalReader(path)

    def read(self, path: str) -> bytes:
        """See `Filesystem.read`."""
        with open(open_regular(path), "rb") as file:
            data = file.read(MAX_READ_BYTES + 1)
        if len(data) > MAX_READ_BYTES:
            raise too_long(path)
        return data

    def replace(self, path: str, data: bytes, check: Check = unguarded) -> None:
        """See `Filesystem.replace`."""
        temporary = f"{path}.tmp{uuid.uuid4().hex}"
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            check()
            os.replace(temporary, path)
        except BaseException as error:
            with contextlib.suppress(OSError):  # the first error is raised
                os.unlink(temporary)
            if isinstance(error, OSError) and error.filename is None:  # a full disk: write and sync name no file
                error.filename = path
            raise
        _sync_one(os.path.dirname(path) or ".")

    def create(self, path: str, data: bytes) -> LocalAppendFile:
        """See `AppendFilesystem.create`; leaves no empty file behind when the disk is full."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        file = LocalAppendFile(path, os.open(path, flags, 0o666))
        try:
            file.append((data,))
        except OSError:
            with contextlib.suppress(OSError):  # the first error is raised
                file.close()
                os.unlink(path)
            raise
        return file

    def sync(self, paths: Iterable[str], directory: str) -> None:
        """See `Filesystem.sync`."""
        for path in (*paths, directory):
            _sync_one(path)

    def remove(self, path: str) -> None:
        """See `Filesystem.remove`."""
        os.unlink(path)

    def move(self, path: str, target: str) -> None:
        """See `Filesystem.move`."""
        os.replace(path, target)

    def make_directory(self, path: str) -> None:
        """See `Filesystem.make_directory`."""
        os.makedirs(path, exist_ok=True)

    def modified_at(self, path: str) -> float | None:
        """See `Filesystem.modified_at`."""
        return os.stat(path).st_mtime

    def now_in(self, directory: str) -> float | None:
        """See `Filesystem.now_in`; writes an empty file for it."""
        return time_in(directory)

    def contains(self, directory: str, path: str) -> bool:
        """See `Filesystem.contains`."""
        parent = os.path.realpath(os.path.dirname(path))
        root = os.path.realpath(directory)
        return os.path.commonpath([parent, root]) == root


def _owner(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except OSError:
        return None


class _LocalReader(Reader):
    def __init__(self, path: str) -> None:
        self.is_linked = False
        try:
            self._fd = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            self.is_linked = True
            self._fd = open_regular(path)
        self.size = os.fstat(self._fd).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]  # a signal or a network disk may cut a read short, and one call returns at most 2 GB
        got = len(data)
        while got < length and (data := os.pread(self._fd, length - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def close(self) -> None:
        os.close(self._fd)


class LocalAppendFile:
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
        try:
            return not os.path.samestat(os.lstat(self._path), os.fstat(self._descriptor))
        except OSError as error:
            if error.errno == errno.ESTALE:
                return True
            directory, now = os.path.dirname(self._path) or ".", path_now(self._descriptor)
            if now and not os.path.isdir(directory):
                raise OSError(moved_text(directory, now)) from error
            if not isinstance(error, FileNotFoundError):
                raise
        return True

    def sync(self) -> None:
        """See `AppendFile.sync`; the first time the directory too, since a synced file without a name is lost."""
        try:
            os.fsync(self._descriptor)
            if not self._directory_synced:
                _sync_one(os.path.dirname(self._path) or ".")
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise
            if not self._directory_synced:
                _LOG.info("The file system of %s cannot sync (%s); flushing has to do.", self._path, error.strerror)
        self._directory_synced = True

    def close(self) -> None:
        """See `AppendFile.close`."""
        os.close(self._descriptor)


LOCAL = LocalFilesystem()


def is_same(directory: str, other: str) -> bool:
    """Return whether two names are of one directory; one that is empty is of none."""
    if not directory or not other or "://" in other:
        return directory == other != ""
    return os.path.realpath(directory) == os.path.realpath(other)


def local_path(path: str | os.PathLike[str]) -> str | None:
    """Return the operating system's name of a local path, without ``file://``; None for any other file system."""
    text = os.fspath(path)
    if text.startswith("file://"):
        return text[len("file://") :]
    return None if _SCHEME.match(text) else text


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path that is the same one after ``os.chdir``: a relative local path below the present working directory.

    Addresses of other file systems stay as they are; so do ``~``, absolute paths, and an empty one.

    Example:
        >>> absolute("gs://bucket/run"), absolute("/logs/../run")
        ('gs://bucket/run', '/logs/../run')
    """
    text, local = os.fspath(path), local_path(path)
    if not local or os.path.isabs(local):
        return text
    return text.removesuffix(local) + os.path.abspath(local)


def filesystem_for(path: str | os.PathLike[str]) -> tuple[Filesystem, str]:
    """Return the file system of a path, and the path's name in it.

    Example:
        >>> filesystem, name = filesystem_for("file:///logs/run")
        >>> filesystem is LOCAL, name
        (True, '/logs/run')
    """
    local = local_path(path)
    if local is not None:
        return LOCAL, local
    from supervisor_core.storage.remote import checkpoint_filesystem

    return checkpoint_filesystem(), os.fspath(path)


def append_filesystem_for(path: str) -> AppendFilesystem:
    """Return the file system to which events below a path are appended: local, or that of the path's scheme.

    Raises:
        EventsError: if no file system for it is installed; the text names the package to install.
    """
    if "://" not in path:
        return LOCAL
    from supervisor_core.storage.remote import events_filesystem

    return events_filesystem(path)


def join(directory: str, name: str) -> str:
    """Return the path of an entry of a directory, local or remote."""
    return directory.rstrip("/") + "/" + name if "://" in directory else os.path.join(directory, name)


def refuse_link(directory: str) -> None:
    """Check that a directory is not a symbolic link, through which files would be written elsewhere.

    Raises:
        OSError: if a local directory is one.
    """
    local = local_path(directory)
    if local is not None and os.path.islink(local.rstrip("/")):
        raise OSError(errno.ELOOP, "it is a symbolic link; a directory was expected", directory)


def _sync_one(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
