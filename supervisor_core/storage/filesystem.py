"""The interface of the file layer: `Filesystem`, which `local` and `remote` implement, and what it returns.

Failures raise `OSError`, with Python's subclasses for a missing file, a missing permission and so on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

Check = Callable[[], None]
"""Called immediately before a change takes effect. Raises `LogdirInUseError` if another chief has taken the logdir
over, and `OSError` if that is unknown: then try again later. See `supervisor_core.checkpoint.guard`."""

FIRST_BYTES = 4 * 1024
"""Size of the first piece that a reader of a growing file asks for; each of the next is four times as long."""
MOST_LEVELS = 64
"""How deep below a logdir directories are looked into. Each level of a path costs memory for all of it."""


def unguarded() -> None:
    """The check where there can be no other chief: passes."""


class RemoteStatus(NamedTuple):
    """The part of ``os.stat_result`` that readers need, of a remote path; stores have no inodes and no devices."""

    st_size: int
    st_mode: int = stat.S_IFREG
    st_mtime_ns: int = 0
    st_ino: int = 0
    st_dev: int = 0


FileStatus = os.stat_result | RemoteStatus


class Range(NamedTuple):
    """A part of a file."""

    path: str
    offset: int
    length: int


class DirectoryEntry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool
    """For a symbolic link: whether it points to one."""
    is_link: bool = False
    owner: int | None = None
    """Owner of a symbolic link to a directory; None where unknown, and for anything else."""


class ReadFile(Protocol):
    """A file open for reading at any offset."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only where the file ends."""

    def close(self) -> None:
        """Close the file."""


class Reader(ReadFile, Protocol):
    """A file of which more is known; leaving its ``with`` closes it."""

    size: int
    """The file's length in bytes when it was opened."""
    status: os.stat_result | None
    """Of a local file; None of any other."""
    is_linked: bool
    """Whether its name is a symbolic link: it may be any file that this process may read."""
    descriptor: int | None
    """Of a local file that is open; None of any other."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


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


class ReadFilesystem(Protocol):
    """The part of a file system that readers of events need. Injected, so that a test can break the disk."""

    def stat(self, path: str) -> FileStatus:
        """Return the status of a path, symbolic links followed."""

    def open(self, path: str) -> ReadFile:
        """Open a file for reading."""

    def entries(self, directory: str) -> Iterable[DirectoryEntry]:
        """Return the entries of a directory, in any order."""


class Filesystem(Protocol):
    """The files of checkpoints, and of a writer of events; paths as the user gave them."""

    prompt: bool
    """True where appending is cheap, so that events are appended as they come; False where each append is a request
    over a network, so that they are gathered for ``flush_secs``."""

    def list_names(self, directory: str) -> list[str]:
        """Return the names of a directory's entries, in no particular order."""

    def walk(self, top: str, on_error: Callable[[OSError], None]) -> Iterator[tuple[str, list[str]]]:
        """Yield each directory from ``top`` down, with the names of its files; follows symbolic links, each once."""

    def is_file(self, path: str) -> bool:
        """Say whether there is a file; a directory is none."""

    def open(self, path: str) -> Reader:
        """Open a file for reading."""

    def read(self, path: str) -> bytes:
        """Return a whole (small) file; one of more than `opening.MAX_READ_BYTES` is an `OSError`."""

    def replace(self, path: str, data: bytes, check: Check = unguarded) -> None:
        """Put ``data`` in place of the file, atomically and durably: a crash leaves the old or the new one.

        ``check`` is called immediately before that takes effect; if it raises, the old file stays.
        """

    def create(self, path: str, data: bytes) -> AppendFile:
        """Create a file that begins with ``data``, to append to it.

        Raises:
            FileExistsError: if something has that name.
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
