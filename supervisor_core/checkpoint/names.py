"""`CheckpointNames`: which file names belong to checkpoints, and which are what a killed save leaves behind.

For the basename ``model.ckpt`` and step 1200:

    model.ckpt-1200.index, model.ckpt-1200.data-00000-of-00001    a checkpoint
    model.ckpt-1200.meta                                          its graph
    model.ckpt-1200.index.tempstate8531...                        being written, renamed when done; likewise .data-...
    model.ckpt-1200_temp/, model.ckpt-1200.part...                shards before they are merged
    model.ckpt-1200_temp_6f1d3c0a9b7e4d21_4be1.../                all of it before it is moved into place, index last;
                                                                  the session first, where there is one
    model.ckpt-1200.meta.tmp0f3c..., checkpoint.tmp0f3c...        being written, renamed when done

Names are read from files that anybody with access to the logdir can write (the state file, the ledger), so a name alone
proves nothing. Deleted or moved away is only what `deletable_files` returns: files in the directory of this run's
checkpoints and named as they are, with the ending of an index, data or graph file; an index without data only if it
ends with the format's mark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from supervisor_core.checkpoint.table import MAGIC
from supervisor_core.storage.filesystem import Filesystem

_STEP = re.compile(r"-(\d{1,19})$")
_DATA = r"\.data-\d{5}-of-\d{5}"
_PART = re.compile(rf"(.+)(?:\.index|\.meta|{_DATA})", re.DOTALL)


def last_part(path: str) -> str:
    """Return what follows the last slash, of either kind.

    Example:
        >>> last_part(r"C:\\runs\\model.ckpt-5"), last_part("/runs/model.ckpt-5")
        ('model.ckpt-5', 'model.ckpt-5')
    """
    return re.split(r"[\\/]", path)[-1]


def step_in_name(path: str) -> int | None:
    """Return the step with which a checkpoint's name ends; None where it ends in no number.

    Example:
        >>> step_in_name("/logs/model.ckpt-00001200"), step_in_name("/logs/model.ckpt")
        (1200, None)
    """
    found = _STEP.search(last_part(path))
    return int(found.group(1)) if found else None


def basename_of(path: str) -> str:
    """Return what a checkpoint's name begins with, before the step.

    Example:
        >>> basename_of("/logs/model.ckpt-5")
        'model.ckpt'
    """
    return _STEP.sub("", last_part(path))


def files_of(name: str, listing: Iterable[str]) -> list[str]:
    """Return which names are the files of one checkpoint: first its index, then its data, then its graph.

    Example:
        >>> files_of("m-5", ["m-5.meta", "m-5.data-00000-of-00001", "m-5.index", "m-50.index"])
        ['m-5.index', 'm-5.data-00000-of-00001', 'm-5.meta']
    """
    stem = re.escape(name)
    ranks = [re.compile(pattern) for pattern in (rf"{stem}\.index", rf"{stem}{_DATA}", rf"{stem}\.meta")]
    ranked = [(rank, item) for item in listing for rank, pattern in enumerate(ranks) if pattern.fullmatch(item)]
    return [item for _, item in sorted(ranked)]


def named_by(listing: Iterable[str]) -> set[str]:
    """Return the names of all checkpoints of which there is a file in a directory, whole or not.

    Example:
        >>> sorted(named_by(["m-5.meta", "m-6.index", "train.py"]))
        ['m-5', 'm-6']
    """
    return {match[1] for match in map(_PART.fullmatch, listing) if match}


class CheckpointNames:
    """The names that one run's checkpoints have.

    Args:
        basename: what they begin with, without directories.
        latest_filename: the state file's name.
    """

    def __init__(self, basename: str, latest_filename: str) -> None:
        stem = re.escape(basename) + r"(?:-\d{1,19})?"
        self._index = re.compile(rf"({stem})\.index")
        self.own = re.compile(stem)
        """What a checkpoint of this run may be called."""
        self._part = re.compile(rf"({stem})(?:\.(?P<ending>index|meta)|(?P<data>{_DATA}))")
        self._temporary = re.compile(
            rf"{stem}(?:(?:\.index|{_DATA})\.tempstate\d+|\.part-\d{{5}}-of-.*|\.meta\.tmp[0-9a-f]{{32}})"
            rf"|{re.escape(latest_filename)}\.tmp[0-9a-f]{{32}}"
            r"|\.supervisor\.(?:probe|lock\.tmp)[0-9a-f]{32}"
        )
        self._temporary_directory = re.compile(rf"({stem})_temp(?:_(?:(?P<session>[0-9A-Za-z]+)_)?[0-9a-f]+)?")

    def prefixes(self, listing: Iterable[str]) -> set[str]:
        """Return the names of the checkpoints among the names of a directory."""
        return {match[1] for match in map(self._index.fullmatch, listing) if match}

    def matches(self, name: str) -> bool:
        """Say whether a checkpoint of this run may be called so.

        Example:
            >>> names = CheckpointNames("model.ckpt", "checkpoint")
            >>> names.matches("model.ckpt-5"), names.matches("train.py")
            (True, False)
        """
        return bool(self.own.fullmatch(name))

    def ending(self, name: str) -> str | None:
        """Return what a file of one of this run's checkpoints is: ``index``, ``data``, ``meta``; None for any other."""
        match = self._part.fullmatch(name)
        return None if match is None else match["ending"] or "data"

    def is_temporary(self, name: str) -> bool:
        """Say whether this is a file that a save writes before the real one, and renames."""
        return bool(self._temporary.fullmatch(name))

    def staged(self, name: str) -> str | None:
        """Return the checkpoint whose parts a save collects in a directory; None for any other directory."""
        match = self._temporary_directory.fullmatch(name)
        return match.group(1) if match else None

    def staged_by(self, name: str) -> str | None:
        """Return the session that wrote such a directory; None where its name does not say."""
        match = self._temporary_directory.fullmatch(name)
        return match["session"] if match else None

    def owner(self, name: str) -> str | None:
        """Return the checkpoint to which a data or graph file belongs; None for any other file."""
        match = self._part.fullmatch(name)
        return match.group(1) if match and match["ending"] != "index" else None


def deletable_files(
    filesystem: Filesystem, directory: str, name: str, listing: Collection[str], names: CheckpointNames
) -> list[str]:
    """Return the names of one checkpoint's files that may be deleted, in the order of their deletion.

    Args:
        directory: where this run's checkpoints are.
        name: what the checkpoint is called, without directories.
        listing: the names in the directory.
        names: the naming of this run's checkpoints.
    """
    if not names.matches(name):
        return []
    files = files_of(name, listing)
    endings = [names.ending(file) for file in files]
    has_data = "data" in endings
    return [
        file
        for file, ending in zip(files, endings, strict=True)
        if ending in ("data", "meta") or (ending == "index" and has_data) or _is_table(filesystem, directory, file)
    ]


def _is_table(filesystem: Filesystem, directory: str, file: str) -> bool:
    try:
        with filesystem.open(os.path.join(directory, file)) as reader:
            return reader.read_at(max(0, reader.size - len(MAGIC)), len(MAGIC)) == MAGIC
    except OSError:  # unreadable: no proof
        return False
