"""Damaged checkpoints are set aside: moved into a directory of their own, with the reason, instead of deleted.

For ``model.ckpt-1200`` in the same directory:

    model.ckpt-1200.damaged/                   ``.damaged-2`` and so on where that name is taken
        why-set-aside.txt                      UTF-8: when (ISO 8601, UTC), a newline, the reason, a newline
        model.ckpt-1200.index, .data-..., .meta    the files, under their own names

Moving the files back up undoes it. A directory with the note is no run directory, and its files are no checkpoint. The
index is moved first: an interrupted move leaves no checkpoint behind, and is finished next time.

What ``tb-supervisor rewind`` moves is good, and never deleted: ``rewound-model.ckpt-1200/``, ``rewound-2-...`` and so
on. The word comes first: a framework that counts its checkpoints by how their names begin does not count these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import count

from supervisor_core.checkpoint.names import CheckpointNames, deletable_files, step_in_name
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import local_path, refuse_link
from supervisor_core.storage.opening import MAX_READ_BYTES, open_below

NOTE = "why-set-aside.txt"
"""Marks such a directory and holds the reason."""

DAMAGED = ".damaged"
"""Ends the name of such a directory; a number may follow, after a dash."""

REWOUND = "rewound-"
"""Begins the name of a directory that `rewind` made; a number and a dash may follow."""

LAST_GOOD = "last-good-"
"""Begins the name under which a checkpoint is kept where a framework deletes it under its own."""

MAX_SET_ASIDE = 5
"""Limit per logdir; beyond it the oldest are deleted, and logged."""

_DIRECTORY = re.compile(r"(?P<name>.+)\.damaged(?:-(?P<number>\d+))?")
_REWOUND = re.compile(rf"{REWOUND}(?:\d+-)?(?P<name>.+)")

Names = Callable[[str], Iterator[str]]
"""Yields paths for a checkpoint that is set aside, in the order to try."""


@dataclass(frozen=True, kw_only=True)
class SetAside:
    """A checkpoint that was set aside."""

    path: str
    """Its directory."""
    name: str
    """The checkpoint's own name, as ``model.ckpt-1200``."""
    step: int | None
    at: float
    """Wall time of the move; 0 where the note has none."""
    reason: str


def find_set_aside(
    filesystem: Filesystem, directory: str, entries: Iterable[str], own: re.Pattern[str] | None = None
) -> list[SetAside]:
    """Return the checkpoints that were set aside in a directory, oldest first. A link to such a directory, or to a
    note, is none.

    Args:
        entries: the names in it.
        own: only those that a session may delete: of checkpoints with such names, and with a note as we write it.
    """
    found = []
    for entry in entries:
        match = _DIRECTORY.fullmatch(entry) or (_REWOUND.fullmatch(entry) if own is None else None)
        if match is None or (own is not None and own.fullmatch(match["name"]) is None):
            continue
        path = os.path.join(directory, entry)
        try:
            note = _read_note(filesystem, path).decode("utf-8", "replace")
        except OSError:  # another directory with such a name
            continue
        when, _, reason = note.partition("\n")
        name, at = match["name"], _at(when)
        if at or own is None:
            found.append(SetAside(path=path, name=name, step=step_in_name(name), at=at, reason=reason.strip()))
    return sorted(found, key=lambda item: (item.at, item.path))


def move_aside(
    filesystem: Filesystem,
    directory: str,
    name: str,
    files: Iterable[str],
    *,
    reason: str,
    at: float,
    names: Names | None = None,
) -> SetAside:
    """Move a checkpoint's files into a directory of their own, durably.

    Args:
        name: its name, without question marks.
        files: the names of its files, the index first.
        reason: goes into the note.
        at: wall time, goes into the note.
        names: what its directory may be called. Default: `names_aside`.

    Raises:
        OSError: if a file cannot be moved; those before it stay moved.
    """
    path = _free_directory(filesystem, directory, name, names or names_aside)
    filesystem.make_directory(path)
    refuse_link(path)
    filesystem.replace(os.path.join(path, NOTE), note_of(reason, at))
    for file in files:
        filesystem.move(os.path.join(directory, file), os.path.join(path, file))
    filesystem.sync((), path)
    filesystem.sync((), directory)
    return SetAside(path=path, name=name, step=step_in_name(name), at=at, reason=reason)


def finish_asides(
    filesystem: Filesystem, directory: str, entries: Iterable[str], names: CheckpointNames
) -> list[SetAside]:
    """Finish interrupted moves of this run's own checkpoints; return those.

    Args:
        entries: the names in it.
        names: the naming of this run's checkpoints.

    Raises:
        OSError: if a file cannot be moved.
    """
    entries, finished = list(entries), []
    for item in find_set_aside(filesystem, directory, entries):
        left = deletable_files(filesystem, directory, item.name, entries, names)
        there = filesystem.list_names(item.path)
        was_moved = item.at and f"{item.name}.index" in there and f"{item.name}.index" not in left
        missing = [file for file in left if was_moved and file not in there]
        for file in missing:
            filesystem.move(os.path.join(directory, file), os.path.join(item.path, file))
        finished += [item] if missing else []
    return finished


def names_aside(path: str) -> Iterator[str]:
    """Yield the names that a directory for a damaged checkpoint may have, in the order in which they are tried."""
    yield f"{path}{DAMAGED}"
    yield from (f"{path}{DAMAGED}-{number}" for number in count(2))


def names_rewound(path: str) -> Iterator[str]:
    """Yield the names that a directory for a checkpoint may have that a restart is not to resume from."""
    directory, name = os.path.split(path)
    yield os.path.join(directory, f"{REWOUND}{name}")
    yield from (os.path.join(directory, f"{REWOUND}{number}-{name}") for number in count(2))


def note_of(reason: str, at: float) -> bytes:
    """Return the content of the note."""
    when = datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
    return f"{when}\n{reason}\n".encode()


def _free_directory(filesystem: Filesystem, directory: str, name: str, names: Names) -> str:
    """Return the path of a directory that does not exist yet, or holds only the note of a move that did not begin."""
    taken = set(filesystem.list_names(directory))
    paths = ((target, os.path.join(directory, target)) for target in names(name))
    return next(path for target, path in paths if target not in taken or _is_unused(filesystem, path))


def _is_unused(filesystem: Filesystem, path: str) -> bool:
    try:
        refuse_link(path)
        return set(filesystem.list_names(path)) <= {NOTE}
    except OSError:  # a link, a file, another user's
        return False


def _read_note(filesystem: Filesystem, path: str) -> bytes:
    if local_path(path) is None:
        return filesystem.read(os.path.join(path, NOTE))
    with open(open_below(path, NOTE), "rb") as file:
        return file.read(MAX_READ_BYTES)


def _at(when: str) -> float:
    try:
        return datetime.fromisoformat(when.strip()).timestamp()
    except ValueError:
        return 0.0
