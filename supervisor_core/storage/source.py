"""Reading of files that grow while others write them (events files): the interfaces, and local files.

A path with ``://`` in it is remote (`supervisor_core.storage.remote_source`, loaded only then); every other path is
local and needs nothing but ``os``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

FIRST_BYTES = 4 * 1024
"""Size of the first piece that a reader of a file asks for; each of the next is four times as long."""


class FileStatus(Protocol):
    """The part of ``os.stat_result`` that readers need."""

    @property
    def st_mode(self) -> int:
        """Kind of file, as ``os.stat`` has it."""

    @property
    def st_size(self) -> int:
        """Bytes."""

    @property
    def st_mtime_ns(self) -> int:
        """Changes with the content, where the store has a modification time; else 0."""

    @property
    def st_ino(self) -> int:
        """Differs for another file of the same name, where the store has identities; else 0."""

    @property
    def st_dev(self) -> int:
        """The scope in which ``st_ino`` is unique."""


class ReadFile(Protocol):
    """A file open for reading at any place. Methods raise ``OSError``."""

    def pread(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes from ``offset`` on; fewer only where the file ends."""

    def close(self) -> None:
        """Close the file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory."""

    name: str
    is_directory: bool
    """For a symbolic link: whether it points to one."""
    is_link: bool
    owner: int | None = None
    """Owner of the symbolic link; None where unknown, and for anything else."""


class ReadFileSystem(Protocol):
    """Opens files and lists directories. Injected, so that a test can break the disk. Everything raises ``OSError``."""

    def stat(self, path: str) -> FileStatus:
        """Return the status of a path, symbolic links followed."""

    def open(self, path: str) -> ReadFile:
        """Open a file for reading."""

    def list(self, directory: str) -> Iterator[Entry]:
        """Yield the entries of a directory, in any order."""


class LocalReadFile:
    """A local file, by its descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def pread(self, length: int, offset: int) -> bytes:
        """See `ReadFile.pread`."""
        data = os.pread(self._descriptor, length, offset)
        while data and len(data) < length:  # a single call returns at most 2 GB, and network disks may return less
            more = os.pread(self._descriptor, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def close(self) -> None:
        """See `ReadFile.close`."""
        os.close(self._descriptor)


class LocalSource:
    """The operating system's files."""

    stat = staticmethod(os.stat)

    def open(self, path: str) -> LocalReadFile:
        """See `ReadFileSystem.open`; waits for no device and no other end of a pipe, and opens nothing but a file."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it has replaced a file since the check of its status
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", path)
        return LocalReadFile(descriptor)

    def list(self, directory: str) -> Iterator[Entry]:
        """See `ReadFileSystem.list`."""
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    is_directory = entry.is_dir()
                except OSError:  # a symbolic link that leads in a circle, or nowhere one may look
                    is_directory = False
                is_link = entry.is_symlink()
                yield Entry(entry.name, is_directory, is_link, _owner(entry) if is_link and is_directory else None)


def _owner(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except OSError:
        return None


LOCAL_SOURCE: ReadFileSystem = LocalSource()


def source_of(path: str) -> ReadFileSystem:
    """Return the file system of a path: local, or that of its scheme.

    Raises:
        EventsError: if no file system for it is installed; the text names the package to install.
    """
    if "://" not in path:
        return LOCAL_SOURCE
    from supervisor_core.storage.remote_source import remote_source

    return remote_source(path)


def is_regular(status: FileStatus) -> bool:
    """Say whether a status is that of a regular file; nothing else can hold events."""
    return stat.S_ISREG(status.st_mode)
