"""The ledger: each session's saves and planned deletions, so that a kill at any moment leaves no orphaned files.

A save is several steps: data and index are moved into place, the state file is replaced, older checkpoints are deleted.
Before the first step the session writes its plan into a file of its own:

``<logdir>/.supervisor.checkpoints/attempt-000012-6f1d3c0a9b7e4d21-model.ckpt.json``: the number of the attempt, the
session's id, and the basename of its checkpoints (percent-encoded). It is replaced as a whole (temporary file, sync,
rename). Byte by byte: one JSON object, ASCII, then a newline (0x0a):

    "v"        1
    "session"  the session's id
    "attempt"  its number among the run's sessions
    "saved"    checkpoints to keep, oldest first; of each [path, attempt, number, saved at]:
               the path without endings, relative to the logdir; the attempt that saved it, and the save's number in
               that attempt (from 1); wall time in seconds since the epoch
    "deletions"
               checkpoints to delete once the state file does not name them; of each [path, {file: written at, ...}]:
               the path as above; its files, in the order of their deletion, with their modification times
    "doubts"   checkpoints of "saved" that are in doubt: path -> [why, [tags of the losses that were not finite]]
    "last_good"
               the checkpoint of "saved" that is kept though the state file does not list it (`Retention.last_good`);
               null without one

The next session reads all of these files, copies what is still valid into its own, deletes the earlier ones, and
finishes the deletions once its own first checkpoint is recorded. A file is deleted only if it has not been written
since its deletion was planned, and if the state file could be read and did not name its checkpoint.

The state file has the id of its save in a comment (`SaveId`). If the ledger has a later save with a higher step, that
one is resumed from: the process was killed just before it replaced the state file, or a chief that had been taken over
replaced it last. A state file that somebody edited, or another program wrote, counts as it is.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from supervisor_core.base.json_records import Attempt, Integer, Secs, can_follow, encode_object, parse_object, record_of
from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.checkpoint.names import CheckpointNames, deletable_files, files_of, last_part, step_in_name
from supervisor_core.checkpoint.retention import Doubt, Retention, Saved
from supervisor_core.checkpoint.state_file import CheckpointState, SaveId, make_relative, read_state
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for, refuse_link

DIRECTORY = ".supervisor.checkpoints"
"""The ledgers' directory in the logdir."""

STATE_NAME = "checkpoint"
"""The state file's name in supervised sessions."""

VERSION = 1
MAX_BYTES = 16 << 20
"""A longer file is no ledger, and is not read."""

_NAME = re.compile(r"attempt-(\d{6,19})-[0-9A-Za-z]+-(.+)\.json(\.tmp[0-9a-f]{32})?")
_LOG = logging.getLogger("supervisor_core")


class SavedAs(NamedTuple):
    """A checkpoint and its save."""

    path: str
    """Relative to the logdir, without endings."""
    attempt: Attempt
    number: Integer
    saved_at: Secs
    """Wall time, seconds since the epoch."""

    @property
    def id(self) -> SaveId:
        """The save."""
        return SaveId(self.attempt, self.number)


class PlannedDeletion(NamedTuple):
    """A checkpoint to delete."""

    path: str
    """Relative to the logdir, without endings."""
    files: Mapping[str, Secs]
    """Its files, relative to the logdir, in the order of their deletion, with their modification times."""


@dataclass(frozen=True)
class LedgerPage:
    """One session's file."""

    session: str
    attempt: Attempt
    saved: tuple[SavedAs, ...] = ()
    deletions: tuple[PlannedDeletion, ...] = ()
    doubts: Mapping[str, Doubt] = field(default_factory=dict)
    last_good: str | None = None


def encode(page: LedgerPage) -> bytes:
    """Return the bytes of a session's file."""
    return encode_object(VERSION, asdict(page)) + b"\n"


def decode(data: bytes) -> LedgerPage:
    """Return the content of a session's file.

    Raises:
        ValueError: if it is no valid page, or a path leads out of the logdir; says why.
    """
    page = record_of(LedgerPage, parse_object(data, VERSION))
    deleted = (path for item in page.deletions for path in (item.path, *item.files))
    last_good = () if page.last_good is None else (page.last_good,)
    for path in (*(item.path for item in page.saved), *deleted, *page.doubts, *last_good):
        if not path or path.startswith("/") or "://" in path or ".." in path.split("/"):
            raise ValueError(f"{path!r} is no path in the logdir")
    return page


def newest_attempt(logdir: str | os.PathLike[str]) -> int:
    """Return the newest attempt in a logdir's ledger or state file; 0 where there is none.

    Both count: somebody may have deleted the ledger and the liveness file. A number that the state file has must not
    be given again, or what a later session saves would not count as later. Implausible numbers are left out.
    """
    if not logdir:
        return 0
    filesystem, name = filesystem_for(logdir)
    try:
        listing = filesystem.list_names(os.path.join(name, DIRECTORY))
    except OSError:
        listing = []
    state = read_state(os.path.join(name, STATE_NAME), filesystem=filesystem).state
    numbers = [int(match.group(1)) for match in map(_NAME.fullmatch, listing) if match]
    if state is not None and state.save_id is not None:
        numbers.append(state.save_id.attempt)
    return max([0, *filter(can_follow, numbers)])


def later_saves(state: CheckpointState | None, pages: Sequence[LedgerPage]) -> list[SavedAs]:
    """Return the saves after that of a state file, newest first; see the module.

    Only those of a higher step, so that a resume never goes back. Empty where the state file has no save's id.
    """
    if state is None or state.save_id is None:
        return []
    step, save_id = step_in_name(state.model_checkpoint_path), state.save_id
    if step is None:
        return []
    found = {item for page in pages for item in page.saved if item.id > save_id}
    later = [item for item in found if (step_in_name(item.path) or -1) > step]
    return sorted(later, key=lambda item: item.id, reverse=True)


class Ledger:
    """The ledger of one logdir's checkpoints of one name.

    Args:
        filesystem: reads and writes; for a session that writes, one that checks before each change.
        logdir: the run's directory, as ``filesystem`` names it.
        basename: the prefix of the checkpoints' names, with directories below the logdir.
        publisher: the session that writes a file of its own; None for one that only reads.
    """

    def __init__(self, filesystem: Filesystem, logdir: str, basename: str, publisher: Publisher | None = None) -> None:
        self._filesystem = filesystem
        self._logdir = logdir
        self._directory = os.path.join(logdir, DIRECTORY)
        self._name = quote(basename, safe="")
        self._names = CheckpointNames(last_part(basename), "")
        self._checkpoints = os.path.dirname(basename)
        """Their directory, relative to the logdir."""
        self._doubts: dict[str, Doubt] | None = None
        self._last_good: str | None = None
        self._publisher = publisher
        self._earlier: list[str] = []
        """Files of earlier sessions; deleted once this session's file has their content."""
        self._saved: dict[str, SavedAs] = {}
        self._deletions: dict[str, PlannedDeletion] = {}
        self._newest = None if publisher is None else SaveId(publisher.attempt, 0)

    def doubt(self, path: str) -> Doubt | None:
        """Return why a checkpoint is in doubt; None where it is not."""
        return self._known_doubts().get(self._relative(path))

    @property
    def last_good(self) -> str | None:
        """The checkpoint that is kept besides those in the state file; None without one."""
        self._known_doubts()
        return None if self._last_good is None else os.path.join(self._logdir, self._last_good)

    def pages(self) -> list[LedgerPage]:
        """Return the sessions' files, by attempts, without those that are unreadable or invalid."""
        return [page for _, page in self._found() if page is not None]

    def planned_deletions(self) -> set[str]:
        """Return the checkpoints to delete, by the last parts of their paths."""
        pages = self.pages()
        kept = {item.path for page in pages for item in page.saved}
        return {last_part(item.path) for page in pages for item in page.deletions if item.path not in kept}

    def later_than(self, state: CheckpointState | None) -> list[SavedAs]:
        """Return `later_saves`; reads nothing where the state file has no save's id, or is of this session's newest."""
        is_newest = state is None or state.save_id is None or state.save_id == self._newest
        return [] if is_newest else later_saves(state, self.pages())

    def _doubts_with(self, path: str, doubt: Doubt | None, retention: Retention) -> dict[str, Doubt]:
        """Return the doubts about the checkpoints to keep, with that about a new one."""
        kept, new = {self._relative(saved.path) for saved in retention.kept}, self._relative(path)
        doubts = {name: item for name, item in self._known_doubts().items() if name in kept and name != new}
        return doubts if doubt is None else {**doubts, new: doubt}

    def _known_doubts(self) -> dict[str, Doubt]:
        """Return the doubts by path; read once, from the earlier sessions."""
        if self._doubts is None:
            self._doubts = {}
            for page in self.pages():  # in the order of the attempts: the later one counts
                for item in page.saved:
                    self._doubts.pop(item.path, None)
                self._doubts.update(page.doubts)
                self._last_good = page.last_good
        return self._doubts

    def _relative(self, path: str) -> str:
        return make_relative([path], self._logdir)[0]

    def _found(self) -> list[tuple[str, LedgerPage | None]]:
        """Return the names of the files, temporary ones included, and their content."""
        try:
            listing = sorted(self._filesystem.list_names(self._directory))
        except OSError:
            return []
        names = [(name, match) for name in listing if (match := _NAME.fullmatch(name)) and match.group(2) == self._name]
        return [(name, None if match.group(3) else self._read(name)) for name, match in names]

    def _read(self, name: str) -> LedgerPage | None:
        path = os.path.join(self._directory, name)
        try:
            with self._filesystem.open(path) as reader:
                if reader.size > MAX_BYTES:
                    raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
                return decode(reader.read_at(0, reader.size))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _LOG.warning("The ledger of earlier sessions cannot be read: %s: %s", path, error)
            return None

    def take_over(self, spared: Collection[str] | None) -> None:
        """Take over the content of earlier sessions' files; their deletions are finished after the next save.

        Args:
            spared: checkpoints that must not be deleted, by the last parts of their paths: those that the state file
                names, and the restored one. None where the state file cannot be read: then nothing is deleted.
        """
        if self._publisher is None:
            return
        for name, page in self._found():
            if page is None or page.attempt < self._publisher.attempt:
                self._earlier.append(name)
            if page is not None:  # in the order of the attempts: the later one counts
                for item in page.saved:
                    self._saved[item.path] = item
                    self._deletions.pop(item.path, None)
                for gone in page.deletions:
                    self._deletions[gone.path] = gone
                    self._saved.pop(gone.path, None)
        # A checkpoint that the state file names is kept: the process was killed before it replaced the state file.
        self._deletions = {
            path: item for path, item in self._deletions.items() if spared is not None and last_part(path) not in spared
        }

    def announce(self, path: str, saved_at: float, retention: Retention, doubt: Doubt | None = None) -> SaveId | None:
        """Write a save's plan before its first step; return its id. Without a session it is None, and nothing is
        written.

        Args:
            path: the checkpoint's prefix.
            saved_at: wall time.
            retention: what is kept of the older ones, and what is not.
            doubt: why the new one is in doubt.

        Raises:
            OSError: if it cannot be written.
            LogdirInUseError: if another chief has taken the logdir over.
        """
        doubts = self._doubts_with(path, doubt, retention)
        last_good = None if retention.last_good is None else self._relative(retention.last_good.path)
        if self._publisher is not None and self._newest is not None:
            self._newest = SaveId(self._newest.attempt, self._newest.number + 1)
            saved = self._plan(SavedAs(self._relative(path), *self._newest, saved_at), retention)
            session, attempt = self._publisher.session, self._publisher.attempt
            self._write(LedgerPage(session, attempt, saved, tuple(self._deletions.values()), doubts, last_good))
        self._doubts, self._last_good = doubts, last_good
        while self._earlier:
            self._remove(os.path.join(self._directory, self._earlier.pop()))
        return self._newest

    def _plan(self, item: SavedAs, retention: Retention) -> tuple[SavedAs, ...]:
        """Note what a save is to do; return the checkpoints to keep, the new one last."""
        self._saved[item.path] = item
        names = [self._relative(saved.path) for saved in retention.kept]
        # Kept from now on: saved again under its name, or to be deleted by a save that failed.
        for name in (*names, *(self._relative(saved.path) for saved in retention.preserved), item.path):
            self._deletions.pop(name, None)
        # A planned deletion stays in the file until it is done: this save may fail before it.
        self._deletions |= {described.path: described for described in map(self._describe, retention.delete)}
        return (*(self._saved[name] for name in names if name in self._saved and name != item.path), item)

    def _write(self, page: LedgerPage) -> None:
        self._filesystem.make_directory(self._directory)  # each time: the logdir may have been deleted since
        refuse_link(self._directory)
        own = f"attempt-{page.attempt:06d}-{page.session}-{self._name}.json"
        self._filesystem.replace(os.path.join(self._directory, own), encode(page))

    def finish_save(self, keep: Sequence[str], deleted: Sequence[str]) -> None:
        """Finish a save: drop the deletions that are done, and do those that were left over.

        Args:
            keep: the checkpoints that the state file lists, the new one included, and the last good one.
            deleted: those that have been deleted since.

        Raises:
            LogdirInUseError: if another chief has taken the logdir over.
        """
        names = set(map(self._relative, keep))
        self._saved = {name: item for name, item in self._saved.items() if name in names}
        for path in deleted:
            self._deletions.pop(self._relative(path), None)
        self._delete()

    def _delete(self) -> None:
        for item in list(self._deletions.values()):
            is_done = True
            own = self._own_files(item)
            for file, written_at in item.files.items():
                if file not in own:
                    continue
                path = os.path.join(self._logdir, file)
                try:
                    found = self._filesystem.modified_at(path)
                    if found is not None and found <= written_at and self._filesystem.contains(self._logdir, path):
                        self._filesystem.remove(path)
                        _LOG.info("Deleted %s, as an earlier session had planned.", path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    is_done = False
                    _LOG.info("The old checkpoint file %s cannot be deleted: %s", path, error)
            if is_done:
                del self._deletions[item.path]

    def _own_files(self, item: PlannedDeletion) -> set[str]:
        """Return those of the files that are this run's: a page in the logdir may be anybody's."""
        directory = os.path.join(self._logdir, self._checkpoints)
        listing = [last_part(file) for file in item.files if os.path.dirname(file) == self._checkpoints]
        found = deletable_files(self._filesystem, directory, last_part(item.path), listing, self._names)
        return {os.path.join(self._checkpoints, file) for file in found}

    def _describe(self, saved: Saved) -> PlannedDeletion:
        prefix = saved.path
        directory = os.path.dirname(prefix) or "."
        files = {}
        for name in files_of(last_part(prefix), self._filesystem.list_names(directory)):
            path = os.path.join(directory, name)
            try:
                written_at = self._filesystem.modified_at(path)
            except FileNotFoundError:
                continue
            if written_at is not None:
                files[self._relative(path)] = written_at
        return PlannedDeletion(self._relative(prefix), files)

    def _remove(self, path: str) -> None:
        try:
            self._filesystem.remove(path)
        except FileNotFoundError:
            pass
        except OSError as error:  # the next session tries again
            _LOG.info("The earlier session's %s cannot be deleted: %s", path, error)
