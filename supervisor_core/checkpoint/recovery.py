"""Which checkpoints exist, and which of them a session resumes from.

`CheckpointListing` has those of one run, in the order in which a session tries them; `choose` the one to resume from,
and those that it skips; `find_runs` all directories with checkpoints, whatever program wrote them.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from supervisor_core.checkpoint import bundle, legacy
from supervisor_core.checkpoint.ledger import STATE_NAME, SavedAs
from supervisor_core.checkpoint.names import (
    CheckpointNames,
    basename_of,
    last_part,
    named_by,
    step_in_name,
    without_shards,
)
from supervisor_core.checkpoint.set_aside import NOTE
from supervisor_core.checkpoint.state_file import CheckpointState, read_state
from supervisor_core.errors import (
    DamagedCheckpointError,
    NoUsableCheckpointError,
    UnlistedCheckpointsError,
    UnreadableCheckpointError,
)
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for, local_path

_LOG = logging.getLogger("supervisor_core")

MAX_NAMED = 10_000
"""Of the checkpoints that a state file names, only the newest of this number are looked for."""

_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")


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
    """Whether its index, or the first file of the older format, is there."""


class CheckpointListing:
    """Lists the checkpoints of one run; see `CheckpointStore` for how a path is resolved.

    Args:
        filesystem: the logdir's.
        logdir: from where the state file's relative paths count.
        directory: where the checkpoints are; the logdir, or below it.
        names: what they are called.
    """

    def __init__(self, filesystem: Filesystem, logdir: str, directory: str, names: CheckpointNames) -> None:
        self._filesystem = filesystem
        self._logdir = logdir
        self._directory = directory
        self._names = names

    def candidates(
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
            path = os.path.join(self._logdir, item.path)
            if f"{last_part(path)}.index" in entries and os.path.dirname(path) == self._directory:
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
            path = os.path.join(self._directory, name)
            if path not in found and (f"{name}.index" in entries or self._is_legacy(path)):
                on_disk.append(self._candidate(path, "disk", None, deletable=True))
        on_disk.sort(key=lambda item: (-1 if item.step is None else item.step, item.saved_at or 0.0), reverse=True)
        return [*found.values(), *on_disk]

    def without_index(self, entries: set[str]) -> list[str]:
        """Return the names of checkpoints that have data and no index, highest step first.

        Without those that a killed save was moving into place: their index is still staged.
        """
        known = {without_shards(name) for name in self._names.prefixes(entries)}
        moving = {self._names.owner(name) for files in self.half_moved(entries).values() for name in files}
        owners = {self._names.owner(name) for name in entries if not name.endswith(".meta")}
        found = [name for name in owners - known - moving if name is not None]
        # Checked again: a save may have moved it into place since the directory was listed.
        found = [name for name in found if not self._filesystem.is_file(os.path.join(self._directory, f"{name}.index"))]
        return sorted(found, key=lambda name: (step_in_name(name) or -1, name), reverse=True)

    def half_moved(self, entries: set[str]) -> dict[str, list[str]]:
        """Return the files that killed saves moved into place while the index stayed staged, by staging directory."""
        known = {without_shards(name) for name in self._names.prefixes(entries)}
        found: dict[str, list[str]] = {}
        for staging in entries:
            if self._names.staged(staging) is None:
                continue
            try:
                inside = set(self._filesystem.list_names(os.path.join(self._directory, staging)))
            except OSError:  # no directory, or deleted: it proves nothing
                continue
            indexed = {name.removesuffix(".index") for name in inside if name.endswith(".index")} - known
            found[staging] = sorted(name for name in entries - inside if self._names.owner(name) in indexed)
        return found

    def list_names(self) -> set[str]:
        """Return the names in the checkpoints' directory; an empty set where it does not exist.

        Raises:
            OSError: if it exists and cannot be listed.
        """
        try:
            return set(self._filesystem.list_names(self._directory))
        except FileNotFoundError:
            return set()

    def _named(self, recorded: str, saved_at: float | None, entries: set[str], there: set[str]) -> Candidate:
        name = last_part(recorded)
        inside = os.path.join(self._directory, name)
        if name in there:
            has_index = f"{name}.index" in entries or self._is_legacy(inside)
            own = self._names.matches(name)
            return self._candidate(inside, "state", saved_at, deletable=own, has_index=has_index)
        absolute = os.path.isabs(recorded) or "://" in recorded or bool(_DRIVE.match(recorded))
        path = recorded if absolute else os.path.normpath(os.path.join(self._logdir, recorded))
        # Of the logdir's own store only: a line in a text file opens no connection to another.
        if path != inside and _store(path) == _store(self._logdir) and self._exists(path):
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
        for file in (f"{path}.index", legacy.first_file(filesystem, path)):
            try:
                return None if file is None else filesystem.modified_at(file)
            except OSError:
                continue  # reading it will say what is wrong
        return None

    def _exists(self, path: str) -> bool:
        filesystem, path = self._filesystem_of(path)
        return filesystem.is_file(f"{path}.index") or legacy.first_file(filesystem, path) is not None

    def _is_legacy(self, path: str) -> bool:
        return legacy.first_file(self._filesystem, path) is not None

    def _filesystem_of(self, path: str) -> tuple[Filesystem, str]:
        is_elsewhere = ("://" in path or "://" in self._logdir) and not path.startswith(self._logdir)
        return filesystem_for(path) if is_elsewhere else (self._filesystem, path)


def _store(path: str) -> str:
    return "" if local_path(path) is not None else path.partition("://")[0].lower()


_STAGING = re.compile(r".+_temp_(?:[0-9A-Za-z]+_)?[0-9a-f]{32}")
_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")


@dataclass(frozen=True)
class RunDirectory:
    """A directory with checkpoints."""

    path: str
    basenames: tuple[str, ...]
    """What its checkpoints' names begin with; first the one that a restart would look for."""


def find_runs(filesystem: Filesystem, top: str, *, on_error: Callable[[OSError], None]) -> Iterator[RunDirectory]:
    """Yield the directories from ``top`` down that have a state file, or a checkpoint's data.

    The variables of an exported SavedModel are no run's checkpoints and are left out, and so are checkpoints that were
    set aside, or are being written.

    Args:
        filesystem: that of ``top``.
        top: where to begin.
        on_error: called for each directory that cannot be searched.
    """
    exports = set()
    for directory, files in filesystem.walk(top, on_error):
        if "saved_model.pb" in files or "saved_model.pbtxt" in files:
            exports.add(os.path.join(directory, "variables"))
        if directory in exports or NOTE in files or _STAGING.fullmatch(last_part(directory)):
            continue
        chosen = []
        if STATE_NAME in files:
            state = read_state(os.path.join(directory, STATE_NAME), filesystem=filesystem).state
            chosen = [basename_of(state.model_checkpoint_path)] if state else []
        found = sorted({basename_of(match.group(1)) for name in files if (match := _DATA.fullmatch(name))})
        if STATE_NAME in files or found:
            names = dict.fromkeys([*chosen, *(["model.ckpt"] if "model.ckpt" in found else []), *found])
            yield RunDirectory(directory, tuple(names) or ("model.ckpt",))


Verify = Callable[[str], bundle.VerifiedCheckpoint]
"""Checks one checkpoint by its path; raises `DamagedCheckpointError`."""


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that was not chosen."""

    path: str
    reason: str
    is_damaged: bool = True
    """False where the file system refuses a file that may be whole; such a checkpoint is left in place."""


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


@dataclass(frozen=True, kw_only=True)
class CheckpointChoice:
    """The checkpoint to resume from, and those that were skipped."""

    chosen: Candidate | None
    """None where there is no checkpoint: a new run."""
    verified: bundle.VerifiedCheckpoint | None
    skipped: tuple[Skipped, ...] = ()
    """Newest first."""
    state_problem: str | None = None
    """The state file's problem, in one sentence; None where there is none."""


def unlisted(directory: str, error: OSError) -> UnlistedCheckpointsError:
    """Return the error for a directory of checkpoints that is there and cannot be listed."""
    return UnlistedCheckpointsError(f"The checkpoints in {directory} cannot be listed: {error.strerror or error}")


def choose(
    candidates: Sequence[Candidate],
    remains: Sequence[Skipped],
    logdir: str,
    problem: str | None,
    *,
    verify: Verify,
    start_over: bool,
) -> CheckpointChoice:
    """Walk from the first candidate to one that verifies; see `CheckpointStore.newest_usable`.

    Args:
        candidates: in the order in which to try them.
        remains: prefixes with data files and no index.
        logdir: for the error's text.
        problem: the state file's problem.
        verify: checks one.
        start_over: where all are damaged, choose none instead of raising.

    Raises:
        NoUsableCheckpointError: if there are checkpoints, and none verifies; lists each with its damage.
    """
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
        raise NoUsableCheckpointError(_none_usable(logdir, skipped, problem))
    return CheckpointChoice(chosen=None, verified=None, skipped=tuple(skipped), state_problem=problem)


def _try(verify: Verify, path: str, skipped: list[Skipped]) -> bundle.VerifiedCheckpoint | None:
    try:
        return verify(path)
    except DamagedCheckpointError as error:
        skipped.append(Skipped(path, str(error), not isinstance(error, UnreadableCheckpointError)))
        return None


def _with_honest_name(
    candidate: Candidate, verified: bundle.VerifiedCheckpoint, others: Sequence[Candidate], verify: Verify
) -> tuple[Candidate, bundle.VerifiedCheckpoint, list[Skipped]] | None:
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


def _step(candidate: Candidate, verified: bundle.VerifiedCheckpoint) -> int:
    step = candidate.step if verified.step is None else verified.step
    return -1 if step is None else step


def _none_usable(logdir: str, skipped: Sequence[Skipped], problem: str | None) -> str:
    listed = "\n".join(f"  {item.path}: {item.reason}" for item in skipped)
    note = f"\n  ({problem})" if problem else ""
    return (
        f"None of the {len(skipped)} checkpoints of {logdir} can be read:\n{listed}{note}\n"
        "Bring one of them back (its .index file and its .data files belong together). To start at step 0, move them "
        'away, or use Options(unusable_checkpoints="start_over"), which sets damaged ones aside.'
    )
