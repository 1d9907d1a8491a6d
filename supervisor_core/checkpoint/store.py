"""`CheckpointStore`: the checkpoints of one logdir: lists, verifies, records, deletes and cleans up.

A path in the state file is looked for in the logdir first, by its last part, so that a copied run directory neither
reads nor deletes the files of the original. A path outside the checkpoints' directory, or of another name (somebody
edited the state file), can be resumed from, and is never deleted.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import DamagedCheckpointError, LogdirInUseError, UnreadableCheckpointError
from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.guard import Publisher, guarded
from supervisor_core.checkpoint.ledger import Ledger, SavedAs
from supervisor_core.checkpoint.names import (
    CheckpointNames,
    deletable_files,
    files_of,
    last_part,
    named_by,
    step_in_name,
)
from supervisor_core.checkpoint.recovery import (
    Candidate,
    CheckpointChoice,
    CheckpointKind,
    Listed,
    Skipped,
    Source,
    Verify,
    newest_usable,
    unlisted,
)
from supervisor_core.checkpoint.retention import Saved
from supervisor_core.checkpoint.set_aside import Names, SetAside, finish_asides, move_aside, names_aside
from supervisor_core.checkpoint.state_file import (
    CheckpointState,
    SaveId,
    StateReading,
    make_relative,
    read_state,
    write_state,
)
from supervisor_core.storage.filesystem import Check, Filesystem, unguarded
from supervisor_core.storage.local import filesystem_for, local_path, remove_tree

_LOG = logging.getLogger("supervisor_core")

MAX_NAMED = 10_000
"""Of the checkpoints that a state file names, only the newest of this number are looked for."""
_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")


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


class CheckpointStore(CheckpointKind):
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
        parts = basename.split("/")
        if not parts[-1] or basename.startswith("/") or ".." in parts:
            raise ValueError(f"basename is {basename!r}; expected a name, or a path that stays below the logdir.")
        if not latest_filename or os.path.basename(latest_filename) != latest_filename:
            raise ValueError(f"latest_filename is {latest_filename!r}; expected a name without directories.")
        self.directory = os.path.join(self.logdir, *parts[:-1])
        self.state_path = os.path.join(self.logdir, latest_filename)
        self._names = CheckpointNames(parts[-1], latest_filename)
        self.own_names = self._names.own
        self.ledger = Ledger(self.filesystem, self.logdir, basename, publisher)
        """The sessions' records of their saves."""

    @property
    def run(self) -> str:
        """See `CheckpointKind.run`."""
        return self.logdir

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

    def listed(self) -> Listed:
        """See `CheckpointKind.listed`. Data files without an index that the state file does not name are remains."""
        candidates, reading, entries = self._list()
        remains = self._without_index(candidates, entries)
        is_new = reading.verdict == "missing" and not (candidates or remains)
        return Listed(candidates, remains, None if is_new else reading.problem)

    def newest_usable(self, *, verify: Verify = bundle.verify, start_over: bool = False) -> CheckpointChoice:
        """Walk from the newest checkpoint back to the first one that verifies; see `recovery.newest_usable`.

        Args:
            verify: checks one; `bundle.verify` reads all its data.
            start_over: where all are damaged, choose none instead of raising.
        """
        return newest_usable(self, partial(self.verified, verify=verify), start_over=start_over)

    def verify(
        self, path: str, *, data: bool = True, on_progress: bundle.Progress | None = None
    ) -> bundle.VerifiedCheckpoint:
        """See `CheckpointKind.verify`."""
        return self.verified(path, verify=partial(bundle.verify, data=data, on_progress=on_progress))

    def verified(self, path: str, *, verify: Verify) -> bundle.VerifiedCheckpoint:
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

    def set_aside(
        self, prefix: str, reason: str, *, clock: Clock = SYSTEM_CLOCK, names: Names = names_aside
    ) -> SetAside | None:
        """Move a checkpoint into a directory of its own, with the reason; see `set_aside.py`.

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
        return move_aside(self.filesystem, directory, name, files, reason=reason, at=clock.wall(), names=names)

    def finish_asides(self) -> list[SetAside]:
        """See `CheckpointKind.finish_asides`."""
        return finish_asides(self.filesystem, self.directory, self.names(), self._names)

    def doubt_about(self, path: str, verified: bundle.VerifiedCheckpoint) -> str | None:
        """See `CheckpointKind.doubt_about`."""
        doubt = self.ledger.doubt(path)
        return None if doubt is None else doubt.text

    def choose(self, path: str, later: Collection[str]) -> None:
        """See `CheckpointKind.choose`: the state file names it without a save, so that no ledger counts."""
        kept = [saved for saved in self.history().kept if saved.path != path and saved.path not in later]
        self.record(path, kept=[*kept, Saved(path, self._modified_at(path) or 0.0)])

    def finish_moves(self) -> None:
        """Finish the moves of earlier sessions that were killed while they moved a checkpoint into its place.

        For the session that saves there, before it chooses a checkpoint to resume from.

        Raises:
            LogdirInUseError: if another chief has taken the logdir over.
        """
        if local_path(self.directory) is None:
            return
        try:
            for name in sorted(filter(self._names.staged, self.names())):
                if self.session is not None and self._names.staged_by(name) == self.session:
                    continue  # under way
                finished = finish_move(self.filesystem, self._path(name), self.directory)
                if finished is not None:
                    _LOG.warning("%s is whole again: an earlier save was cut short while it moved it.", finished)
        except OSError as error:
            _LOG.warning("A save that was cut short in %s cannot be finished: %s", self.directory, error)

    def sweep_leftovers(self, *, alone: bool = False, min_age_secs: float = 60.0, clock: Clock = SYSTEM_CLOCK) -> Swept:
        """Delete what killed saves left behind: temporary files and directories with this run's names.

        Data without an index stays: it may be the rest of a checkpoint. What cannot be deleted is logged, and tried
        again next time.

        Args:
            alone: no other chief can be at work: another session's staging directories are deleted at once.
            min_age_secs: younger files stay: a save may be writing them.
            clock: gives the wall time.
        """
        self.finish_moves()
        entries = self.names()
        moment = clock.wall() - min_age_secs
        try:
            self.finish_asides()
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
        """Return the checkpoints that have data and no index, highest step first.

        Without those that a killed save was moving into place: their index is still staged.
        """
        known = self._names.prefixes(entries)
        moving = {self._names.owner(name) for files in self._half_moved(entries).values() for name in files}
        owners = {self._names.owner(name) for name in entries if not name.endswith(".meta")}
        found = [name for name in owners - known - moving if name is not None]
        # Checked again: a save may have moved it into place since the directory was listed.
        found = [name for name in found if not self.filesystem.is_file(self._path(f"{name}.index"))]
        found.sort(key=lambda name: (step_in_name(name) or -1, name), reverse=True)
        # A planned deletion was interrupted: the next session finishes it.
        planned = self.ledger.planned_deletions() if found else ()
        named = {candidate.path for candidate in candidates}
        return tuple(
            Skipped(self._path(name), f"{last_part(name)}.index: the file is missing")
            for name in found
            if name not in planned and self._path(name) not in named
        )

    def _read_state(self) -> StateReading:
        return read_state(self.state_path, filesystem=self.filesystem)

    def _list(self) -> tuple[list[Candidate], StateReading, set[str]]:
        reading = self._read_state()
        try:
            entries = self.names()
            later = self.ledger.later_than(reading.state)
            candidates = self._found(reading.state, entries, later)
        except OSError as error:
            raise unlisted(self.directory, error) from error
        if candidates and candidates[0].source == "ledger":
            reading = replace(reading, problem=reading.problem or _overtaken(reading.state, later))
        return candidates, reading, entries

    def _found(
        self, state: CheckpointState | None, entries: set[str], later: Sequence[SavedAs] = ()
    ) -> list[Candidate]:
        """Return the candidates: the state file's choice, the others it names from the last, then the rest on disk.

        Args:
            state: the state file; None where it is missing or unreadable.
            entries: what `list_names` returned.
            later: saves newer than the state file, newest first; those whose files exist come first.
        """
        found: dict[str, Candidate] = {}
        for item in later:
            path = os.path.join(self.logdir, item.path)
            if f"{last_part(path)}.index" in entries and os.path.dirname(path) == self.directory:
                found[path] = self._candidate(path, "ledger", item.saved_at, deletable=True)
        if state is not None:
            stamps = dict(zip(state.all_model_checkpoint_paths, state.timestamps, strict=False))
            there = named_by(entries)
            named = (state.model_checkpoint_path, *reversed(state.all_model_checkpoint_paths[-MAX_NAMED:]))
            for recorded in dict.fromkeys(named):
                candidate = self._named(recorded, stamps.get(recorded), entries, there)
                found.setdefault(candidate.path, candidate)
        on_disk = []
        for name in self._names.prefixes(entries):
            path = self._path(name)
            if path not in found:
                on_disk.append(self._candidate(path, "disk", None, deletable=True))
        on_disk.sort(key=lambda item: (-1 if item.step is None else item.step, item.saved_at or 0.0), reverse=True)
        return [*found.values(), *on_disk]

    def _half_moved(self, entries: set[str]) -> dict[str, list[str]]:
        """Return the files that killed saves moved into place while the index stayed staged, by staging directory."""
        known = self._names.prefixes(entries)
        found: dict[str, list[str]] = {}
        for staging in entries:
            if self._names.staged(staging) is None:
                continue
            try:
                inside = set(self.filesystem.list_names(self._path(staging)))
            except OSError:  # no directory, or deleted: it proves nothing
                continue
            indexed = {name.removesuffix(".index") for name in inside if name.endswith(".index")} - known
            found[staging] = sorted(name for name in entries - inside if self._names.owner(name) in indexed)
        return found

    def _named(self, recorded: str, saved_at: float | None, entries: set[str], there: set[str]) -> Candidate:
        name = last_part(recorded)
        inside = self._path(name)
        if name in there:
            has_index, own = f"{name}.index" in entries, self._names.matches(name)
            return self._candidate(inside, "state", saved_at, deletable=own, has_index=has_index)
        absolute = os.path.isabs(recorded) or "://" in recorded or bool(_DRIVE.match(recorded))
        path = recorded if absolute else os.path.normpath(os.path.join(self.logdir, recorded))
        # Of the logdir's own store only: a line in a text file opens no connection to another.
        if path != inside and _store_of(path) == _store_of(self.logdir) and self._exists(path):
            return self._candidate(path, "state", saved_at, deletable=False)
        step = step_in_name(inside)
        return Candidate(inside, step, "state", saved_at, deletable=True, found=False, has_index=False)

    def _candidate(
        self,
        path: str,
        source: Source,
        saved_at: float | None,
        *,
        deletable: bool,
        has_index: bool = True,
    ) -> Candidate:
        if saved_at is None:
            saved_at = self._modified_at(path)
        return Candidate(path, step_in_name(path), source, saved_at, deletable=deletable, has_index=has_index)

    def _modified_at(self, path: str) -> float | None:
        filesystem, path = self._filesystem_of(path)
        try:
            return filesystem.modified_at(f"{path}.index")
        except OSError:  # reading it will say what is wrong
            return None

    def _exists(self, path: str) -> bool:
        filesystem, path = self._filesystem_of(path)
        return filesystem.is_file(f"{path}.index")

    def _filesystem_of(self, path: str) -> tuple[Filesystem, str]:
        is_elsewhere = ("://" in path or "://" in self.logdir) and not path.startswith(self.logdir)
        return filesystem_for(path) if is_elsewhere else (self.filesystem, path)


def _overtaken(state: CheckpointState | None, later: Sequence[SavedAs]) -> str | None:
    """Describe a state file that was written by a chief that had been taken over; None where it was not."""
    newest = later[0].id
    if state is None or state.save_id is None or state.save_id.attempt == newest.attempt or newest.number == 1:
        return None  # the process was killed just before it replaced the state file: no problem
    return (
        f"the state file names {state.model_checkpoint_path}, saved by attempt {state.save_id.attempt}, though attempt "
        f"{newest.attempt} has saved {later[0].path} after it: a chief that had been taken over wrote it last"
    )


def _paths_of(state: CheckpointState | None) -> tuple[str, ...]:
    return (*state.all_model_checkpoint_paths, state.model_checkpoint_path) if state else ()


def _store_of(path: str) -> str:
    return "" if local_path(path) is not None else path.partition("://")[0].lower()


def move_into_place(filesystem: Filesystem, staging: str, directory: str) -> None:
    """Move all files of a staging directory into their place, the index last, durably.

    Raises:
        OSError: if a file cannot be moved; those before it stay in place.
        LogdirInUseError: if another chief has taken the logdir over.
    """
    for file in sorted(os.listdir(staging), key=lambda file: file.endswith(".index")):
        filesystem.move(os.path.join(staging, file), os.path.join(directory, file))
    filesystem.sync((), directory or ".")


def finish_move(filesystem: Filesystem, staging: str, directory: str) -> str | None:
    """Finish a move that was interrupted; return the prefix of the checkpoint.

    Args:
        filesystem: checks before each change.
        staging: the staging directory, local.
        directory: the checkpoint's directory.

    Returns:
        None where there is nothing to finish: the move had not begun, or the checkpoint in place is whole.

    Raises:
        OSError: if a file cannot be moved.
        LogdirInUseError: if another chief has taken the logdir over.
    """
    try:
        staged = os.listdir(staging)
        name = next(file.removesuffix(".index") for file in staged if file.endswith(".index"))
        count = bundle.read_index(os.path.join(staging, name)).num_shards
    except (OSError, StopIteration, DamagedCheckpointError):  # no directory, or not written yet
        return None
    if count <= sum(file.startswith(f"{name}.data-") for file in staged):
        return None
    prefix = os.path.join(directory, name)
    try:
        bundle.verify(prefix)
    except UnreadableCheckpointError:  # it may be whole
        raise
    except DamagedCheckpointError:
        move_into_place(filesystem, staging, directory)
        filesystem.remove_tree(staging)
        return prefix
    return None


class StagedCheckpoint:
    """A checkpoint that is written and verified in a directory of its own, then moved into its place.

    So a name like ``model.ckpt-1200`` never stands for anything but a whole checkpoint that survives a power cut. Made
    before the first byte of it; then `publish`, or `discard`, or both.

    The directory is ``<checkpoint>_temp_<session>_<32 hex digits>/``; without the session if none holds the logdir.
    Data is moved first and the index last, since the index makes a checkpoint of the files. After a kill in between the
    new index is still staged; the next session finishes the move (`finish_move`).

    Local files only: in a remote store a checkpoint is written in its place, and the state file alone says that it
    counts. The store's check runs before each file, or on a remote store before the writing begins.

    Raises:
        OSError: if nothing can be written there.
        LogdirInUseError: on a remote store, if another chief has taken the logdir over.
    """

    def __init__(self, store: CheckpointStore, path: str) -> None:
        self._store = store
        self._filesystem = store.filesystem
        self._target = filesystem_for(path)[1]
        self._directory, name = os.path.split(self._target)
        self._replaces = self._filesystem.is_file(f"{self._target}.index")
        self._file_count = 0  # that are moved into place
        self._is_published = False
        self._workshop: str | None = None
        self.path = self._target
        """Where to write it."""
        if local_path(path) is None:
            store.check()
            return
        workshop = staging_path(self._target, store.session)
        self._workshop = workshop
        try:
            os.mkdir(workshop)  # and not its parents: making a logdir that has gone away does not bring it back
        except BaseException:
            self.discard()
            raise
        self.path = os.path.join(workshop, name)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is written elsewhere than where it is going to be, which can still be changed then."""
        return self._workshop is not None

    def destination(self, written: str, path: str | None = None) -> str:
        """Return the path that `publish` gives it."""
        if self._workshop is None:
            return written
        return os.path.join(self._directory, os.path.basename(path or written))

    def publish(self, written: str, path: str | None = None) -> str:
        """Move what was written into its place, durably; return its path there.

        Args:
            written: the path of what was written, whose files are durable themselves.
            path: where it is going to be after all, if not where it was said; in the same directory. Not for remote
                stores.

        Raises:
            OSError: if that cannot be done.
            LogdirInUseError: if another chief has taken the logdir over.
        """
        if self._workshop is None:
            return written
        before, name = os.path.basename(written), os.path.basename(path or written)
        if name != before:
            self._target = os.path.join(self._directory, name)
            self._replaces = self._filesystem.is_file(f"{self._target}.index")
            for file in os.listdir(self._workshop):
                renamed = name + file.removeprefix(before)
                os.replace(os.path.join(self._workshop, file), os.path.join(self._workshop, renamed))
        self._file_count = len(os.listdir(self._workshop))
        move_into_place(self._filesystem, self._workshop, self._directory)
        self._is_published = True
        os.rmdir(self._workshop)
        return os.path.join(self._directory, name)

    def discard(self) -> None:
        """Delete what there is of it, unless it counts: once the state file names it, it stays, whatever failed then.

        One that was there before under its name stays as it was; where the move has begun, it is finished, since the
        older one's data is gone. If that fails too, the rest stays staged for the next session. What has been moved
        into place stays where another chief has taken the logdir over: it may be theirs by now. Raises nothing of all
        that.
        """
        try:
            if self._workshop is None:
                if not ((self._replaces or self._store.may_name(self._target)) and self._is_whole()):
                    self._store.delete(self._target)
            elif self._replaces and self._has_begun:
                if os.path.isdir(self._workshop):
                    move_into_place(self._filesystem, self._workshop, self._directory)
                    os.rmdir(self._workshop)
            else:
                self._take_back(self._workshop)
        except (OSError, LogdirInUseError) as error:  # the save's own error is the one to raise
            _LOG.warning("What a failed save left of %s cannot be deleted: %s", self._target, error)

    def _take_back(self, workshop: str) -> None:
        try:
            if self._has_begun and not (self._is_published and self._store.may_name(self._target)):
                self._store.delete(self._target)
        finally:  # last, since it shows what was half moved into place; no other process knows of it: it needs no check
            if os.path.isdir(workshop):
                remove_tree(workshop)

    @property
    def _has_begun(self) -> bool:
        """Whether a file of it has left the directory where it was written."""
        staged = os.listdir(self._workshop) if self._workshop and os.path.isdir(self._workshop) else []
        return self._file_count > len(staged)

    def _is_whole(self) -> bool:
        try:
            bundle.verify(self._target)
        except DamagedCheckpointError as error:
            _LOG.warning("%s was only partly replaced: %s", self._target, error)
            return False
        return True


def staging_path(prefix: str, session: str | None) -> str:
    """Return a new name for the directory in which a checkpoint is written.

    Args:
        prefix: the checkpoint's final prefix.
        session: the session that writes it; None if it does not hold the logdir.
    """
    owner = "" if session is None else f"{session}_"
    return f"{prefix}_temp_{owner}{uuid.uuid4().hex}"
