"""Who may have written a checkpoint: what runs code when it is read is read from trusted owners only.

Trusted are root, this user, and the user to whom a file belongs that this process creates there: on a network file
system whose server maps root to another user, that is another one. What belongs to somebody else, or what others may
write, may be anybody's. The directories up to the logdir count, too: who may write into one can put another file in a
file's place.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from supervisor_core.base.log import command_line
from supervisor_core.base.systems import user_id, user_name
from supervisor_core.checkpoint.sealed_files import SealedFiles
from supervisor_core.storage.directory import new_file_in

_ACCESS_LIST = "system.posix_acl_access"


class Distrust(NamedTuple):
    """Why a checkpoint may be another user's."""

    reason: str
    """A clause: ``/runs/a belongs to nobody (user 65534)``."""
    command: str
    """What changes that, for a shell."""


def distrust(files: SealedFiles, logdir: str, *, may_write: bool = True) -> Distrust | None:
    """Return why a checkpoint may be another user's; None where it is not.

    Args:
        files: the checkpoint's.
        logdir: the run's directory, above it.
        may_write: whether to create a file beside the checkpoint, to see to whom it belongs.
    """
    listed = [item.path for item in files.manifest.files]
    inside = sorted({*listed, *(os.path.dirname(name) for name in listed)} - {""})
    beside = os.path.dirname(files.directory)
    above = [beside] if beside == logdir else [beside, logdir]
    found: dict[str, os.stat_result] = {}
    for path in (files.directory, *map(files.path, inside), *above):
        try:
            found[path] = os.lstat(path)
        except OSError as error:
            command = command_line("ls", "-ld", "--", path)
            return Distrust(f"{path} cannot be looked at ({error.strerror or error})", command)
    trusted = {0, user_id()}
    if may_write and any(status.st_uid not in trusted for status in found.values()):
        trusted |= own_there(beside)
    for path, status in found.items():
        if status.st_uid not in trusted:
            owner = str(user_id())
            command = command_line("chown", "-hR", owner, "--", files.directory)
            if path in above:
                command = command_line("chown", owner, "--", path)
            return Distrust(f"{path} belongs to {_user(status.st_uid)}", command)
    for path, status in found.items():
        if not stat.S_ISLNK(status.st_mode) and others_may_write(path, status):
            mode = stat.S_IMODE(status.st_mode)
            command = command_line("chmod", "go-w", "--", path)
            return Distrust(f"others may write {path}, whose mode is {mode:04o}", command)
    return None


def own_there(directory: str) -> set[int]:
    """Return the user to whom a file belongs that this process creates in a directory."""
    try:
        return {new_file_in(directory).st_uid}
    except OSError:
        return set()


def others_may_write(path: str, status: os.stat_result) -> bool:
    """Return whether the mode of a file or a directory lets another user than its owner write it."""
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private(path, status)


def _is_private(path: str, status: os.stat_result) -> bool:
    """Return whether the group of a file is its owner's own, of which nobody else is a member: the default of many
    systems, whose umask lets the group write."""
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    try:
        # With such a list the group's bits are those of all whom it names.
        if hasattr(os, "listxattr") and _ACCESS_LIST in os.listxattr(path):
            return False
    except OSError:
        return False
    is_own = group.gr_name == owner.pw_name and group.gr_gid == owner.pw_gid
    return is_own and set(group.gr_mem) <= {owner.pw_name}


def _user(number: int) -> str:
    name = user_name(number)
    return f"user {number}" if name is None else f"{name} (user {number})"
