"""A local directory that is in use: whether it was renamed or deleted, and whether files can be made in it."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from contextlib import suppress

from supervisor_core.base.systems import AS_BYTES, CLOSE_ON_EXEC, user_id, user_name

_LASTING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG)
RENAMED = "was renamed to"
"""In every text about a directory that was."""
_ADVICE = {
    errno.EROFS: "Its file system is mounted read-only: mount it for writing, or use another directory.",
    errno.ENAMETOOLONG: "Use a shorter path.",
}


def path_now(descriptor: int) -> str | None:
    """Return the path that an open local file has by now; an empty one if it was deleted, None where unknown."""
    try:
        if os.fstat(descriptor).st_nlink == 0:
            return ""
        path = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
    return path if os.path.exists(path) else None


def moved_text(directory: str, path: str) -> str:
    """Return what happened to a directory that is not there any more, and what to do.

    Args:
        path: the path that a file in it has by now.
    """
    return f"{directory} {RENAMED} {os.path.dirname(path)}: move it back, nothing is written until then"


def probe(directory: str) -> None:
    """Make an empty file in a directory, and delete it. A directory that is missing is not made: then the file is made
    in the one in which it would be.

    Raises:
        OSError: if that cannot be done.
    """
    existing = _existing(directory)
    if existing != directory and not os.path.isdir(existing):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), existing)
    new_file_in(existing)


def new_file_in(directory: str) -> os.stat_result:
    """Make an empty file in a directory, and delete it; return its status: whose it was, and when it was made.

    Raises:
        OSError: if that cannot be done.
    """
    path = os.path.join(directory, f".supervisor.probe{uuid.uuid4().hex}")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSE_ON_EXEC | AS_BYTES, 0o600)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)
        with suppress(OSError):  # in a directory from which nothing may be deleted
            os.unlink(path)


def may_pass(error: OSError) -> bool:
    """Return whether what keeps files from being made may pass by itself, as a full disk may: not a missing right."""
    return error.errno not in _LASTING


def why_unwritable(directory: str, error: OSError) -> str:
    """Return why files cannot be made in a directory, and what to do: sentences without their beginning.

    Args:
        directory: its path; it may be missing.
        error: what making one raised.
    """
    text = f"{error.strerror or error}."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{text} {_rights(_existing(directory))}"
    if may_pass(error):
        return text
    return f"{text} {_ADVICE.get(error.errno or 0, 'A directory was expected there: move the other one away.')}"


def _existing(directory: str) -> str:
    """Return the directory, or the nearest one above it that is there, as far as this process may look."""
    while not os.path.exists(directory):
        above = os.path.dirname(directory.rstrip("/")) or "/"
        if above == directory:
            return directory
        directory = above
    return directory


def _rights(directory: str) -> str:
    me = _user(user_id())
    try:
        found = os.stat(directory)
    except OSError:
        return f"This process runs as {me}."
    return (
        f"{directory} belongs to {_user(found.st_uid)} and has the mode {stat.S_IMODE(found.st_mode):o}; this process "
        f"runs as {me}. Let this user write there, run as its owner, or use another directory."
    )


def _user(uid: int) -> str:
    name = user_name(uid)
    return f"uid {uid}" if name is None else f"{name} (uid {uid})"
