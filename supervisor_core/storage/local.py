"""Local files, straight from the operating system; and which `Filesystem` a path belongs to.

Local paths (``file://`` too, for checkpoints) need nothing but ``os``. All others (``gs://``, ``s3://``, ``memory://``)
go through fsspec, which is loaded only then (`remote`, `remote_source`). Local files are opened by `opening` alone.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

from supervisor_core.base.systems import AS_BYTES, CLOSE_ON_EXEC, IS_WINDOWS, read_at
from supervisor_core.storage.directory import moved_text, new_file_in, path_now
from supervisor_core.storage.filesystem import Check, DirectoryEntry, Filesystem, Reader, ReadFilesystem, unguarded
from supervisor_core.storage.opening import FOLDER_FLAGS, OPEN_FLAGS, open_regular, open_unlinked, read_whole

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


_LOG = logging.getLogger("supervisor_core")

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EROFS)


class LocalFilesystem:
    """The operating system's files; a `Filesystem` and a `ReadFilesystem`."""

    prompt = True
    stat = staticmethod(os.stat)
    walk = staticmethod(walk)
    remove_tree = staticmethod(remove_tree)

    def list_names(self, directory: str) -> list[str]:
        """See `Filesystem.list_names`."""
        return os.listdir(directory)

    def entries(self, directory: str) -> Iterator[DirectoryEntry]:
        """See `ReadFilesystem.entries`."""
        with os.scandir(directory) as entries:
            for entry in entries:
                is_folder, is_link = is_directory(entry), entry.is_symlink()
                owner = _owner(entry) if is_link and is_folder else None
                yield DirectoryEntry(entry.name, is_folder, is_link, owner)

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
            return read_whole(file, path)

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
        """See `Filesystem.create`; leaves no empty file behind when the disk is full."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | CLOSE_ON_EXEC | AS_BYTES
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
        return new_file_in(directory).st_mtime

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
            self._fd = open_unlinked(path)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            self.is_linked = True
            self._fd = open_regular(path)
        self.status = os.fstat(self._fd)
        self.size = self.status.st_size
        self.descriptor = self._fd

    def read_at(self, offset: int, length: int) -> bytes:
        parts = []  # a signal or a network disk may cut a read short, and one call returns at most 2 GB
        while length > 0 and (data := read_at(self._fd, length, offset)):
            parts.append(data)
            offset, length = offset + len(data), length - len(data)
        return b"".join(parts)  # a single part is not copied

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
    from supervisor_core.storage.remote import remote_filesystem

    return remote_filesystem(os.fspath(path)), os.fspath(path)


def append_filesystem_for(path: str) -> Filesystem:
    """Return the file system to which events below a path are appended: local, or that of the path's scheme.

    Raises:
        EventsError: if no file system for it is installed; the text names the package to install.
    """
    if "://" not in path:
        return LOCAL
    from supervisor_core.storage.remote import remote_filesystem

    return remote_filesystem(path, "write events to")


def source_of(path: str) -> ReadFilesystem:
    """Return the file system from which events below a path are read: local, or that of the path's scheme.

    Raises:
        EventsError: if no file system for it is installed; the text names the package to install.
    """
    if "://" not in path:
        return LOCAL
    from supervisor_core.storage.remote import remote_filesystem
    from supervisor_core.storage.remote_source import RemoteSource

    return RemoteSource(remote_filesystem(path, "read events from"))


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
    if IS_WINDOWS and os.path.isdir(path):  # it opens none
        return
    fd = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
