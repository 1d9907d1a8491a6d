"""Which processes of this machine write a file, as far as this user may know it. Linux only: elsewhere nothing.

A process writes a file that it has open for writing: what only reads it (TensorBoard, ``tail -f``) may outlive its
writer by days.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from supervisor_core.base.systems import user_id
from supervisor_core.process.identity import read_kernel


class OpenFiles:
    """The files that processes have open for writing at one moment, by a part of their names.

    Args:
        part: what the names of the files have in them.
    """

    def __init__(self, part: str) -> None:
        self._links: dict[str, list[str]] = {}
        self._hidden: set[int] = set()
        """Users with processes whose files this user may not know."""
        for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc/self/fd") else ()):
            try:
                for name, link in _open_in(int(pid)):
                    if part in name and _is_written(link):
                        self._links.setdefault(name, []).append(link)
            except OSError:
                with suppress(OSError):  # it has ended
                    self._hidden.add(os.stat(f"/proc/{pid}").st_uid)

    def holder(self, path: str) -> int | None:
        """Return a process that has the file open for writing; None if none is known to."""
        found = (link for link in self._links.get(os.path.basename(path), ()) if _is_same(link, path))
        return next((int(link.split("/")[2]) for link in found), None)

    def is_complete_for(self, path: str) -> bool:
        """Return whether every process of the file's owner was looked at."""
        try:
            owner = os.stat(path).st_uid
        except OSError:
            return False
        return owner not in self._hidden and user_id() in (0, owner) and os.path.isdir("/proc/self/fd")


def _open_in(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the name of each open file, and the link to it. The files themselves are not asked: a dead server of one
    would block."""
    directory = f"/proc/{pid}/fd"
    for number in os.listdir(directory):
        with suppress(OSError):  # closed in between
            link = f"{directory}/{number}"
            yield os.path.basename(os.readlink(link)), link


def _is_written(link: str) -> bool:
    """Return whether a link of ``/proc/PID/fd`` is of a file that is open for writing."""
    flags = re.search(rb"^flags:\s*([0-7]+)$", read_kernel(link.replace("/fd/", "/fdinfo/")), re.MULTILINE)
    return flags is not None and int(flags.group(1), 8) & os.O_ACCMODE != os.O_RDONLY


def _is_same(link: str, path: str) -> bool:
    try:
        return os.path.samefile(link, path)
    except OSError:
        return False
