"""Reading of files that grow while others write them (events files): the interfaces, and the choice of the file system.

A path with ``://`` in it is remote (`supervisor_core.storage.remote_source`, loaded only then); every other path is
local and needs nothing but ``os``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

FIRST_BYTES = 4 * 1024
"""Size of the first piece that a reader of a file asks for; each of the next is four times as long."""


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """The part of ``os.stat_result`` that readers need, of a remote path; stores have no inodes and no devices."""

    st_size: int
    st_mode: int = stat.S_IFREG
    st_mtime_ns: int = 0
    st_ino: int = 0
    st_dev: int = 0


FileStatus = os.stat_result | RemoteStatus


class ReadFile(Protocol):
    """A file open for reading at any offset. Methods raise ``OSError``."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only where the file ends."""

    def close(self) -> None:
        """Close the file."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory."""

    name: str
    is_directory: bool
    """For a symbolic link: whether it points to one."""
    is_link: bool = False
    owner: int | None = None
    """Owner of the symbolic link; None where unknown, and for anything else."""


class ReadFileSystem(Protocol):
    """Opens files and lists directories. Injected, so that a test can break the disk. Everything raises ``OSError``."""

    def stat(self, path: str) -> FileStatus:
        """Return the status of a path, symbolic links followed."""

    def open(self, path: str) -> ReadFile:
        """Open a file for reading."""

    def entries(self, directory: str) -> Iterable[DirectoryEntry]:
        """Return the entries of a directory, in any order."""


def source_of(path: str) -> ReadFileSystem:
    """Return the file system of a path: local, or that of its scheme.

    Raises:
        EventsError: if no file system for it is installed; the text names the package to install.
    """
    if "://" not in path:
        from supervisor_core.storage.local import LOCAL

        return LOCAL
    from supervisor_core.storage.remote_source import remote_source

    return remote_source(path)


def is_regular(status: FileStatus) -> bool:
    """Say whether a status is that of a regular file; nothing else can hold events."""
    return stat.S_ISREG(status.st_mode)
