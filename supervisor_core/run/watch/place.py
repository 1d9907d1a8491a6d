"""`Place`: where a run's directory is, whose it is, and where its session says that it runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from supervisor_core.run.model.run import Session
from supervisor_core.storage.local import local_path

_WITHOUT_OWNERS = re.compile(r"fuse|9p|cifs|smb3|vboxsf|drvfs")
"""File systems that may show each file as the mounting user's, whoever wrote it."""
SEVERAL = -1
"""The owner where directory and files are not one user's: any of them may have put links, or files, there."""
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Of one directory, as this process sees it."""

    directory: str
    """Without links, or a remote address."""
    mount: str
    """Where its file system is mounted, or its bucket."""
    owner: int | None
    """The user whose events these are; None where the file system does not say."""
    recorded: str | None
    """Where the session's record says that it runs; None without one."""
    user: int | None
    """Whose process it is, by that record."""

    def is_recorded_by(self, other: Place) -> bool:
        """Say whether a record names this directory: here, or by its path below another mount point of its file
        system."""
        below = self.directory[len(self.mount.rstrip("/")) :]
        named = (other.recorded or "").rstrip("/")
        return named == self.directory or (self.mount == other.mount and len(below) > 1 and named.endswith(below))


def place_of(session: Session, directory: str) -> Place:
    """Return the place of a directory.

    Args:
        session: one of its own.
    """
    local = local_path(directory)
    theirs = None if session.logdir is None else local_path(session.logdir)
    recorded = session.logdir if theirs is None else os.path.realpath(theirs)
    if local is None:
        directory = directory.rstrip("/")
        mount, owner = "/".join(directory.split("/")[:3]), None
    else:
        directory = os.path.realpath(local)
        mount, kind = mount_of(directory)
        owner = None if _WITHOUT_OWNERS.match(kind) else _owner(directory, session.files)
    return Place(directory=directory, mount=mount, owner=owner, recorded=recorded, user=session.uid)


def mount_of(path: str) -> tuple[str, str]:
    """Return where the file system of a path without links is mounted, and its kind; ``/`` where that is unknown."""
    found = "/", ""
    for line in os.fsdecode(_mounts()).splitlines():
        fields, _, kind = line.partition(" - ")
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields.split(" ")[4])
        if len(point) >= len(found[0]) and f"{path}/".startswith(f"{point.rstrip('/')}/"):
            found = point, kind.split(" ")[0]
    return found


def _mounts() -> bytes:
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _owner(directory: str, files: tuple[str, ...]) -> int | None:
    try:
        owners = {os.lstat(path).st_uid for path in {*files[:1], *files[-1:]}}
        owners |= {os.stat(directory).st_uid} - {0}  # of root's own anybody may have been given a place
    except OSError:
        return None
    return owners.pop() if len(owners) == 1 else SEVERAL
