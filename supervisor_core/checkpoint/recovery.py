"""Choose the checkpoint to resume from (`newest_usable`, `rewind`), and move damaged ones away: `set_damaged_aside`.

Both are the same for each `CheckpointKind`, which lists, verifies and moves the checkpoints of one directory:
`CheckpointStore` TensorFlow's checkpoints, `SealedStore` directories with a manifest.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.errors import (
    DamagedCheckpointError,
    NoUsableCheckpointError,
    UnlistedCheckpointsError,
    UnreadableCheckpointError,
)
from supervisor_core.checkpoint.bundle import Progress, VerifiedCheckpoint
from supervisor_core.checkpoint.names import last_part, step_in_name
from supervisor_core.checkpoint.set_aside import (
    MAX_SET_ASIDE,
    Names,
    SetAside,
    find_set_aside,
    names_aside,
    names_rewound,
)
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import refuse_link

_LOG = logging.getLogger("supervisor_core")

Verify = Callable[[str], VerifiedCheckpoint]
"""Checks one checkpoint by its path; raises `DamagedCheckpointError`."""

Source = Literal["ledger", "state", "disk"]


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that a session could resume from."""

    path: str
    """The prefix, as a saver's ``restore`` takes it."""
    step: int | None
    """The step in its name; None where the name ends in no number."""
    source: Source
    """``ledger``: saved after the state file was written; ``state``: named by it; ``disk``: only found on disk."""
    saved_at: float | None
    """Wall time: the state file's timestamp, else when its file was written; None where neither is known."""
    _: KW_ONLY
    deletable: bool
    """Whether it lies in the directory of this run's checkpoints, and is named as they are."""
    found: bool = True
    """Whether any file of it is there."""
    has_index: bool = True
    """Whether its index, or its manifest, is there."""


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that was not chosen."""

    path: str
    reason: str
    is_damaged: bool = True
    """False where the file system refuses a file that may be whole; such a checkpoint is left in place."""


class Listed(NamedTuple):
    """The checkpoints of a directory."""

    candidates: Sequence[Candidate]
    """In the order in which to try them."""
    remains: tuple[Skipped, ...] = ()
    """Those of which a part is missing, so that they are not tried."""
    problem: str | None = None
    """What is wrong with the file that names them; None without a problem."""


class CheckpointKind(ABC):
    """The checkpoints of one kind in one directory."""

    directory: str
    """The checkpoints' directory: the run's, or below it."""
    filesystem: Filesystem
    """Reads and writes; for a session that saves there, it runs its check before each change."""
    own_names: re.Pattern[str]
    """Matches the names that a checkpoint of this run may have."""

    @property
    @abstractmethod
    def run(self) -> str:
        """The run's directory."""

    @abstractmethod
    def listed(self) -> Listed:
        """List the checkpoints. Raises `UnlistedCheckpointsError`."""

    @abstractmethod
    def verify(self, path: str, *, data: bool = True, on_progress: Progress | None = None) -> VerifiedCheckpoint:
        """Verify one checkpoint as a resume does, as far as that needs no framework.

        Args:
            data: False trusts files of the right size.
            on_progress: called with (bytes done, bytes in all) while data is read.

        Raises:
            DamagedCheckpointError: why it is not chosen.
        """

    @abstractmethod
    def set_aside(
        self, prefix: str, reason: str, *, clock: Clock = SYSTEM_CLOCK, names: Names = names_aside
    ) -> SetAside | None:
        """Move a checkpoint out of the way, with the reason; None where there is nothing to move.

        Args:
            prefix: the checkpoint's path.
            reason: goes into the note.
            names: yields names for the directory. A later session may delete what `names_aside` names.
        """

    @abstractmethod
    def doubt_about(self, path: str, verified: VerifiedCheckpoint) -> str | None:
        """Return why the model in a checkpoint may be spoiled; None where nothing says so.

        Args:
            path: the checkpoint's.
            verified: what `verify` returned.
        """

    def finish_asides(self) -> list[SetAside]:
        """Finish interrupted moves of `set_aside`; return those.

        Raises:
            OSError: if a file cannot be moved.
        """
        return []

    def sessions(self) -> set[str]:
        """Return the sessions that the checkpoints name as their own."""
        return set()

    def found_as(self, path: str) -> str:
        """Return the path under which a restart finds this checkpoint."""
        return os.path.join(self.directory, last_part(path))

    @abstractmethod
    def choose(self, path: str, later: Collection[str]) -> None:
        """Make a checkpoint the one to resume from, before those after it are moved.

        Args:
            later: the paths of those after it.

        Raises:
            OSError: if that cannot be written.
        """

    def all_set_aside(self) -> list[SetAside]:
        """Return the checkpoints that were set aside, oldest first, whatever their names.

        Raises:
            OSError: if the directory exists and cannot be listed.
        """
        return find_set_aside(self.filesystem, self.directory, self.names())

    def own_set_aside(self) -> list[SetAside]:
        """Return those of `all_set_aside` that this run may delete."""
        return find_set_aside(self.filesystem, self.directory, self.names(), self.own_names)

    def delete_set_aside(self, item: SetAside) -> None:
        """Delete a checkpoint that was set aside, with its directory.

        Raises:
            OSError: if it cannot be deleted, or the directory has become a link.
        """
        refuse_link(item.path)
        self.filesystem.remove_tree(item.path)

    def names(self) -> set[str]:
        """Return the names in the checkpoints' directory; none where it does not exist.

        Raises:
            OSError: if it exists and cannot be listed.
        """
        try:
            return set(self.filesystem.list_names(self.directory))
        except FileNotFoundError:
            return set()


@dataclass(frozen=True, kw_only=True)
class CheckpointChoice:
    """The checkpoint to resume from, and those that were skipped."""

    chosen: Candidate | None
    """None where there is no checkpoint: a new run."""
    verified: VerifiedCheckpoint | None
    skipped: tuple[Skipped, ...] = ()
    """Newest first."""
    state_problem: str | None = None
    """The state file's problem, in one sentence; None where there is none."""


def unlisted(directory: str, error: OSError) -> UnlistedCheckpointsError:
    """Return the error for a directory of checkpoints that is there and cannot be listed."""
    return UnlistedCheckpointsError(f"The checkpoints in {directory} cannot be listed: {error.strerror or error}")


def newest_usable(
    kind: CheckpointKind, verify: Verify, *, start_over: bool = False, latest_step: int | None = None
) -> CheckpointChoice:
    """Walk from the newest checkpoint back to the first one that verifies.

    One that is whole and holds an earlier step than its name says (its files are another's) is skipped where a better
    one exists.

    Args:
        start_over: where all are damaged, choose none instead of raising. An unreadable one raises in any case: it may
            be whole.
        latest_step: pass over later ones. Default: none is too late.

    Raises:
        NoUsableCheckpointError: if there are checkpoints, and none verifies; lists each with its damage.
        UnlistedCheckpointsError: if the directory is there and cannot be listed.
    """
    candidates, remains, problem = kind.listed()
    if latest_step is not None:
        candidates = [item for item in candidates if item.step is not None and item.step <= latest_step]
    skipped: list[Skipped] = []
    for index, candidate in enumerate(candidates):
        verified = _try(verify, candidate.path, skipped)
        if verified is None:
            continue
        chosen = candidate
        better = _with_honest_name(candidate, verified, candidates[index + 1 :], verify)
        if better is not None:
            chosen, verified, passed_over = better
            skipped += passed_over
        skipped += [item for item in remains if (step_in_name(item.path) or -1) > _step(chosen, verified)]
        return CheckpointChoice(chosen=chosen, verified=verified, skipped=tuple(skipped), state_problem=problem)
    skipped += remains
    if skipped and not (start_over and all(item.is_damaged for item in skipped)):
        raise NoUsableCheckpointError(_none_usable(kind.directory, skipped, problem))
    return CheckpointChoice(chosen=None, verified=None, skipped=tuple(skipped), state_problem=problem)


def set_damaged_aside(kind: CheckpointKind, damaged: Iterable[Skipped], clock: Clock = SYSTEM_CLOCK) -> None:
    """Move damaged checkpoints out of the way, and delete the oldest that were moved beyond `MAX_SET_ASIDE`. What
    cannot be moved is logged.

    Args:
        kind: moves them; its directory is the session's own.
        damaged: those that were passed over; one that may be whole stays.
    """
    moved = 0
    try:
        for item in damaged:
            aside = kind.set_aside(item.path, item.reason, clock=clock) if item.is_damaged else None
            if aside is not None:
                moved += 1
                _LOG.warning("The damaged checkpoint %s was moved to %s.", item.path, aside.path)
        for extra in kind.own_set_aside()[: -max(moved, MAX_SET_ASIDE)]:
            kind.delete_set_aside(extra)
            _LOG.warning("Deleted %s (%s): more than %d damaged checkpoints.", extra.path, extra.reason, MAX_SET_ASIDE)
    except OSError as error:
        _LOG.warning("A damaged checkpoint cannot be moved out of the way in %s: %s", kind.directory, error)


def rewind(kind: CheckpointKind, path: str, *, clock: Clock = SYSTEM_CLOCK) -> tuple[SetAside, ...]:
    """Move those checkpoints out of the way that a restart would try before another one; return where they are. What
    an interrupted call has left is moved, too.

    Only while no session has the logdir.

    Args:
        path: the checkpoint to resume from, in the directory of ``kind``.

    Raises:
        DamagedCheckpointError: if it is damaged; nothing is moved.
        OSError: if one cannot be moved; those before it stay moved. Call it again.
    """
    path = kind.found_as(path)
    step = kind.verify(path).step or -1
    finished = kind.finish_asides()
    candidates, remains, _ = kind.listed()
    places = [item.path for item in candidates]
    if path not in places:
        raise DamagedCheckpointError(f"{path} is not among the checkpoints of {kind.run}")
    place = places.index(path)
    # Once the state file names this one, those that it no longer names come after it.
    dropped = [item for item in candidates[place + 1 :] if item.source != candidates[place].source == "state"]
    later = [item.path for item in candidates[:place] if item.found and item.deletable]
    later += [item.path for item in dropped if (item.step or -1) > step]
    later += [item.path for item in remains if (step_in_name(item.path) or -1) > step]
    kind.choose(path, later)
    reason = f"tb-supervisor rewind: {last_part(path)} is to be resumed from."
    moved = [kind.set_aside(item, reason, clock=clock, names=names_rewound) for item in later]
    return (*finished, *(item for item in moved if item is not None))


def log_skipped(skipped: Sequence[Skipped], chosen: str | None) -> None:
    """Log the checkpoints that were passed over, and what is resumed from instead.

    Args:
        skipped: newest first.
        chosen: the path of the checkpoint that was chosen; None where training starts at step 0.
    """
    instead = "Starting at step 0" if chosen is None else f"Resuming from {chosen}"
    for item in skipped:
        what = "is damaged" if item.is_damaged else "cannot be read"
        _LOG.warning("The checkpoint %s %s: %s. %s instead.", item.path, what, item.reason.rstrip("."), instead)


def _try(verify: Verify, path: str, skipped: list[Skipped]) -> VerifiedCheckpoint | None:
    try:
        return verify(path)
    except DamagedCheckpointError as error:
        skipped.append(Skipped(path, str(error), not isinstance(error, UnreadableCheckpointError)))
        return None


def _with_honest_name(
    candidate: Candidate, verified: VerifiedCheckpoint, others: Sequence[Candidate], verify: Verify
) -> tuple[Candidate, VerifiedCheckpoint, list[Skipped]] | None:
    """Return a better candidate where this one's files are those of another step, and the skipped ones.

    A save reads the step for the name first, so a checkpoint holds that step or a later one. The better one must hold
    the step of its own name, or of this name; where names count something else, none does.
    """
    if verified.step is None or candidate.step is None or verified.step >= candidate.step:
        return None
    reason = f"{last_part(candidate.path)}: it holds step {verified.step}, not the step in its name"
    skipped = [Skipped(candidate.path, reason)]
    for other in others:
        found = _try(verify, other.path, skipped)
        if found is None or found.step is None or found.step < verified.step:
            continue
        if found.step in (other.step, candidate.step):
            return other, found, skipped
    return None


def _step(candidate: Candidate, verified: VerifiedCheckpoint) -> int:
    step = candidate.step if verified.step is None else verified.step
    return -1 if step is None else step


def _none_usable(directory: str, skipped: Sequence[Skipped], problem: str | None) -> str:
    listed = "\n".join(f"  {item.path}: {item.reason}" for item in skipped)
    note = f"\n  ({problem})" if problem else ""
    return (
        f"None of the {len(skipped)} checkpoints of {directory} can be read:\n{listed}{note}\n"
        "Bring one of them back (its .index file and its .data files belong together). To start at step 0, move them "
        'away, or use Options(unusable_checkpoints="start_over"), which sets damaged ones aside.'
    )
