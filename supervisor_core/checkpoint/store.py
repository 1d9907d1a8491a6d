"""`CheckpointStore`: the checkpoints of one logdir: lists, verifies, records, deletes and cleans up.

A path in the state file is looked for in the logdir first, by its last part, so that a copied run directory neither
reads nor deletes the files of the original. A path outside the checkpoints' directory, or of another name (somebody
edited the state file), can be resumed from, and is never deleted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.guard import Publisher, guarded
from supervisor_core.checkpoint.ledger import Ledger, SavedAs
from supervisor_core.checkpoint.names import CheckpointNames, deletable_files, files_of, last_part, without_shards
from supervisor_core.checkpoint.recovery import (
    Candidate,
    CheckpointChoice,
    CheckpointListing,
    Skipped,
    Verify,
    choose,
    unlisted,
)
from supervisor_core.checkpoint.replacement import finish_replacement
from supervisor_core.checkpoint.retention import Saved
from supervisor_core.checkpoint.set_aside import SetAside, find_set_aside, finish_moves, move_aside
from supervisor_core.checkpoint.state_file import (
    CheckpointState,
    SaveId,
    StateReading,
    make_relative,
    read_state,
    write_state,
)
from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.storage.filesystem import Check, Filesystem, unguarded
from supervisor_core.storage.local import filesystem_for, local_path, refuse_link

_LOG = logging.getLogger("supervisor_core")


@dataclass(frozen=True, kw_only=True)
class History:
    """The checkpoints that retention manages, at the start of a session."""

    kept: tuple[Saved, ...]
    """Oldest first; only those whose files exist."""
    last_preserved_at: float | None


class Swept(NamedTuple):
    """The paths of what killed saves left behind."""

    deleted: tuple[str, ...]
    too_young: tuple[str, ...]
    """Not deleted: a save may be writing it."""


class CheckpointStore:
    """The checkpoints of one logdir. The constructor reads nothing; nothing is cached between calls.

    Args:
        logdir: the run's directory, local or not.
        basename: the prefix of the checkpoints' names; may have directories, below the logdir.
        latest_filename: the state file's name.
        filesystem: reads and writes. Default: by the logdir's scheme.
        publisher: the session that changes it: its check runs before each change, and its saves are written into the
            ledger; see `guard` and `ledger`. Default: no check, and no ledger is written.

    Raises:
        ValueError: if ``basename`` leads out of the logdir, or ``latest_filename`` has directories.

    Example:
        >>> CheckpointStore("/logs/new-run").newest_usable().chosen is None
        True
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        basename: str = "model.ckpt",
        latest_filename: str = "checkpoint",
        *,
        filesystem: Filesystem | None = None,
        publisher: Publisher | None = None,
    ) -> None:
        default, self.logdir = filesystem_for(logdir) if filesystem is None else (filesystem, os.fspath(logdir))
        self.session = None if publisher is None else publisher.session
        """The session that changes it; None without a publisher."""
        self.check: Check = unguarded if publisher is None else publisher.check
        self._publisher = publisher
        self.filesystem = guarded(default, self.check)
        """Reads and writes; runs ``check`` before each change."""
        parts = basename.split("/")
        if not parts[-1] or basename.startswith("/") or ".." in parts:
            raise ValueError(f"basename is {basename!r}; expected a name, or a path that stays below the logdir.")
        if not latest_filename or os.path.basename(latest_filename) != latest_filename:
            raise ValueError(f"latest_filename is {latest_filename!r}; expected a name without directories.")
        self.directory = os.path.join(self.logdir, *parts[:-1])
        """The checkpoints' directory: the logdir, or below it."""
        self.state_path = os.path.join(self.logdir, latest_filename)
        self._names = CheckpointNames(parts[-1], latest_filename)
        self.ledger = Ledger(self.filesystem, self.logdir, basename, publisher)
        """The sessions' records of their saves."""
        self._listing = CheckpointListing(self.filesystem, self.logdir, self.directory, self._names)

    def prepare(self) -> None:
        """Check that this session may save, and make the checkpoints' directory again where it was deleted: if it is in
        the session's logdir. Any other may come back by itself.

        Raises:
            OSError: if that cannot be done, or the logdir is not in its place.
            LogdirInUseError: if another chief has taken the logdir over.
        """
        if self._publisher is None:
            return
        self._publisher.bring_back()
        home = self._publisher.logdir
        if home is not None and self.filesystem.contains(home, os.path.join(self.directory, "-")):
            self.filesystem.make_directory(self.directory)

    def candidates(self) -> list[Candidate]:
        """List the checkpoints to resume from, best first.

        First those that the ledger knows to be newer than the state file (`ledger.later_saves`), then the state file's
        choice, then the others it names, newest first, then those only on disk, by the step in their names, highest
        first. A checkpoint that the state file names is listed even if its files are gone.

        Raises:
            UnlistedCheckpointsError: if the logdir is there and cannot be listed.
        """
        return self._list()[0]

    def without_index(self) -> tuple[Skipped, ...]:
        """Return the prefixes with data files and no index that the state file does not name.

        Raises:
            UnlistedCheckpointsError: if the logdir is there and cannot be listed.
        """
        candidates, _, entries = self._list()
        return self._without_index(candidates, entries)

    def newest_usable(self, *, verify: Verify = bundle.verify, start_over: bool = False) -> CheckpointChoice:
        """Walk from the newest checkpoint back to the first one that verifies.

        Data files without an index count as a damaged checkpoint. One that is whole and holds an earlier step than its
        name says (its files are another's) is skipped where a better one exists.

        Args:
            verify: checks one; `bundle.verify` reads all its data.
            start_over: where all are damaged, choose none instead of raising. An unreadable one raises in any case: it
                may be whole.

        Raises:
            NoUsableCheckpointError: if there are checkpoints, and none verifies; lists each with its damage.
            UnlistedCheckpointsError: if the logdir is there and cannot be listed.
        """
        candidates, reading, entries = self._list()
        remains = self._without_index(candidates, entries)
        problem = reading.problem
        if reading.verdict == "missing" and not (candidates or remains):
            problem = None
        check = partial(self.verify, verify=verify)
        return choose(candidates, remains, self.logdir, problem, verify=check, start_over=start_over)

    def verify(self, path: str, *, verify: Verify = bundle.verify) -> bundle.VerifiedCheckpoint:
        """Verify one checkpoint that the state file names, or that is in the logdir.

        Args:
            path: the checkpoint's.
            verify: see `newest_usable`.

        Raises:
            DamagedCheckpointError: why it is not chosen; of one outside of the logdir nothing that is in it. A state
                file that somebody has written may name any file.
        """
        try:
            return verify(path)
        except UnreadableCheckpointError:  # which has what the file system says
            raise
        except DamagedCheckpointError as error:
            if self._is_here(os.path.dirname(path) or "."):
                raise
            raise DamagedCheckpointError(
                f"{last_part(path)}: it does not verify; it lies outside of the logdir, so no more is said of it"
            ) from error.__cause__

    def history(self) -> History:
        """Return the existing checkpoints that the state file lists, for `retention.decide`; those newer than it come
        last."""
        candidates, reading, _ = self._list()
        listed, later = (
            [
                Saved(item.path, item.saved_at, item.deletable)
                for item in candidates
                if item.source == source and item.has_index and item.saved_at is not None
            ]
            for source in ("state", "ledger")
        )
        # candidates begin with the one to resume from; retention needs the state file's order
        order = {name: number for number, name in enumerate(dict.fromkeys(map(last_part, _paths_of(reading.state))))}
        listed.sort(key=lambda saved: order[last_part(saved.path)])
        preserved = reading.state.last_preserved_timestamp if reading.state else None
        return History(kept=(*listed, *reversed(later)), last_preserved_at=preserved)

    def named(self) -> frozenset[str] | None:
        """Return the last parts of the paths that the state file names; None where it cannot be read."""
        reading = self._read_state()
        return frozenset(map(last_part, _paths_of(reading.state))) if reading.verdict == "good" else None

    def may_name(self, prefix: str) -> bool:
        """Say whether the state file names a checkpoint; True also where it exists and cannot be read."""
        reading = self._read_state()
        is_named = last_part(prefix) in map(last_part, _paths_of(reading.state))
        return is_named or reading.verdict not in ("good", "missing")

    def sync(self, prefix: str) -> None:
        """Sync a checkpoint's files, then their directory: both survive a power cut.

        Raises:
            OSError: if they cannot be synced, or there are none.
        """
        directory = os.path.dirname(prefix) or "."
        files = files_of(last_part(prefix), self.filesystem.list_names(directory))
        if not files:
            raise FileNotFoundError(f"There are no files of the checkpoint {prefix}.")
        self.filesystem.sync([os.path.join(directory, name) for name in files], directory)

    def record(
        self,
        prefix: str,
        *,
        kept: Sequence[Saved] = (),
        last_preserved_at: float | None = None,
        save_id: SaveId | None = None,
    ) -> None:
        """Make a checkpoint the one to resume from: replace the state file, durably.

        Args:
            prefix: the checkpoint; must be durable itself (`sync`).
            kept: the checkpoints to list, oldest first (`Retention.keep`).
            last_preserved_at: `Retention.last_preserved_at`.
            save_id: the save's number in the ledger.

        Raises:
            OSError: if it cannot be written; the old state file stays.
        """
        others = [saved for saved in kept if saved.path != prefix]
        stamps = [saved.saved_at for saved in kept if saved.path == prefix]
        paths = make_relative([*(saved.path for saved in others), prefix], self.logdir)
        state = CheckpointState(
            model_checkpoint_path=paths[-1],
            all_model_checkpoint_paths=paths,
            timestamps=(*(saved.saved_at for saved in others), stamps[-1]) if stamps else (),
            last_preserved_timestamp=last_preserved_at,
            save_id=save_id,
        )
        write_state(self.state_path, state, filesystem=self.filesystem)

    def delete(self, prefix: str) -> tuple[str, ...]:
        """Delete a checkpoint's files: index first, so that an interrupted deletion leaves no checkpoint.

        Deletes only this run's own checkpoints, see `names.deletable_files`; missing files count as deleted.

        Returns:
            The paths that were deleted.

        Raises:
            OSError: for the first file that cannot be deleted; those after it stay.
        """
        directory, name = os.path.dirname(prefix) or ".", last_part(prefix)
        files = deletable_files(self.filesystem, directory, name, self._own_entries(directory), self._names)
        if self._is_graph_only(files):
            return ()
        deleted: list[str] = []
        for name in files:
            path = os.path.join(directory, name)
            try:
                self.filesystem.remove(path)
            except FileNotFoundError:
                continue
            deleted.append(path)
        return tuple(deleted)

    def set_aside(self, prefix: str, reason: str, *, clock: Clock = SYSTEM_CLOCK) -> SetAside | None:
        """Move a damaged checkpoint into a directory of its own, with the reason; see `set_aside.py`.

        Only for the session that holds the logdir. Moves only this run's own checkpoints.

        Returns:
            Its new place; None where there is nothing to move.

        Raises:
            OSError: if it cannot be moved.
        """
        directory, name = os.path.dirname(prefix) or ".", last_part(prefix)
        files = files_of(name, self._own_entries(directory)) if self._names.matches(name) else []
        if self._is_graph_only(files):
            return None
        return move_aside(self.filesystem, directory, without_shards(name), files, reason=reason, at=clock.wall())

    def all_set_aside(self) -> list[SetAside]:
        """Return the checkpoints that were set aside, oldest first, whatever their names.

        Raises:
            OSError: if the directory exists and cannot be listed.
        """
        return find_set_aside(self.filesystem, self.directory, self._listing.list_names())

    def own_set_aside(self) -> list[SetAside]:
        """Return those of `all_set_aside` that this run may delete.

        Raises:
            OSError: if the directory exists and cannot be listed.
        """
        return find_set_aside(self.filesystem, self.directory, self._listing.list_names(), self._names.own)

    def delete_set_aside(self, item: SetAside) -> None:
        """Delete a checkpoint that was set aside, with its directory.

        Raises:
            OSError: if it cannot be deleted, or the directory has become a link.
        """
        refuse_link(item.path)
        self.filesystem.remove_tree(item.path)

    def finish_replacements(self) -> None:
        """Finish the moves of earlier sessions that were killed while they replaced a checkpoint; see `replacement`.

        For the session that saves there, before it chooses a checkpoint to resume from.

        Raises:
            LogdirInUseError: if another chief has taken the logdir over.
        """
        if local_path(self.directory) is None:
            return
        try:
            for name in sorted(filter(self._names.staged, self._listing.list_names())):
                if self.session is not None and self._names.staged_by(name) == self.session:
                    continue  # under way
                finished = finish_replacement(self.filesystem, self._path(name), self.directory)
                if finished is not None:
                    _LOG.warning("%s is whole again: an earlier save was cut short while it replaced it.", finished)
        except OSError as error:
            _LOG.warning("A save that was cut short in %s cannot be finished: %s", self.directory, error)

    def sweep_leftovers(self, *, alone: bool = False, min_age_secs: float = 60.0, clock: Clock = SYSTEM_CLOCK) -> Swept:
        """Delete what killed saves left behind: temporary files and directories with this run's names, and data in
        place whose index is still staged.

        Any other data without an index stays: it may be the rest of a checkpoint. What cannot be deleted is logged, and
        tried again next time.

        Args:
            alone: no other chief can be at work: another session's staging directories are deleted at once.
            min_age_secs: younger files stay: a save may be writing them.
            clock: gives the wall time.
        """
        self.finish_replacements()
        entries = self._listing.list_names()
        moment = clock.wall() - min_age_secs
        half_moved = self._listing.half_moved(entries)
        try:
            finish_moves(self.filesystem, self.directory, entries, self._names)
        except OSError as error:
            _LOG.warning("A damaged checkpoint cannot be moved out of the way in %s: %s", self.directory, error)
        swept, young = [], []
        for name in sorted(entries):
            path = self._path(name)
            staging = self._names.staged(name) is not None
            if not (staging or self._names.is_temporary(name)):
                continue
            try:
                another_s = alone and self._names.staged_by(name) not in (None, self.session)
                if not (another_s or self._is_older(path, staging, moment)):
                    young.append(path)
                    continue
                for moved in map(self._path, half_moved.get(name, ())):
                    self.filesystem.remove(moved)
                    swept.append(moved)
                # The staging directory goes last: it is the proof that the moved files are incomplete.
                (self.filesystem.remove_tree if staging else self.filesystem.remove)(path)
                swept.append(path)
            except OSError as error:
                _LOG.warning("%s, left behind by an earlier save, cannot be deleted: %s", path, error)
        return Swept(tuple(swept), tuple(young))

    def _is_older(self, path: str, directory: bool, moment: float) -> bool:
        inside = [os.path.join(path, name) for name in self.filesystem.list_names(path)] if directory else []
        return all((self.filesystem.modified_at(item) or 0.0) <= moment for item in (path, *inside))

    def _own_entries(self, directory: str) -> list[str]:
        """Return the names in the directory of this run's checkpoints; empty for any other."""
        try:
            return self.filesystem.list_names(directory) if self._is_here(directory) else []
        except FileNotFoundError:
            return []

    def _is_graph_only(self, files: Sequence[str]) -> bool:
        """Say whether these are no checkpoint's files: at most its graph's."""
        return all(self._names.ending(file) == "meta" for file in files)

    def _is_here(self, directory: str) -> bool:
        """Say whether it is the directory of this run's checkpoints, whatever its spelling."""
        here, there = os.path.join(self.directory, "-"), os.path.join(directory, "-")
        return self.filesystem.contains(self.directory, there) and self.filesystem.contains(directory, here)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _without_index(self, candidates: Sequence[Candidate], entries: set[str]) -> tuple[Skipped, ...]:
        named = {candidate.path for candidate in candidates}
        names = self._listing.without_index(entries)
        # A planned deletion was interrupted: the next session finishes it.
        planned = self.ledger.planned_deletions() if names else ()
        paths = [self._path(name) for name in names if name not in planned]
        return tuple(
            Skipped(path, f"{last_part(path)}.index: the file is missing") for path in paths if path not in named
        )

    def _read_state(self) -> StateReading:
        return read_state(self.state_path, filesystem=self.filesystem)

    def _list(self) -> tuple[list[Candidate], StateReading, set[str]]:
        reading = self._read_state()
        try:
            entries = self._listing.list_names()
            later = self.ledger.later_than(reading.state)
            candidates = self._listing.candidates(reading.state, entries, later)
        except OSError as error:
            raise unlisted(self.directory, error) from error
        if candidates and candidates[0].source == "ledger":
            reading = replace(reading, problem=reading.problem or _overtaken(reading.state, later))
        return candidates, reading, entries


def _overtaken(state: CheckpointState | None, later: Sequence[SavedAs]) -> str | None:
    """Describe a state file that was written by a chief whose lease had been taken over; None where it was not."""
    newest = later[0].id
    if state is None or state.save_id is None or state.save_id.attempt == newest.attempt or newest.number == 1:
        return None  # the process was killed just before it replaced the state file: no problem
    return (
        f"the state file names {state.model_checkpoint_path}, saved by attempt {state.save_id.attempt}, though attempt "
        f"{newest.attempt} has saved {later[0].path} after it: a chief that had been taken over wrote it last"
    )


def _paths_of(state: CheckpointState | None) -> tuple[str, ...]:
    return (*state.all_model_checkpoint_paths, state.model_checkpoint_path) if state else ()
