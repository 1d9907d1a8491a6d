"""`Survey`: what a logdir holds in the way of checkpoints, in the order in which a session would try them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from supervisor_core.checkpoint import legacy
from supervisor_core.checkpoint.filesystem import Filesystem, filesystem_for
from supervisor_core.checkpoint.naming import CheckpointNames, files_of, last_part, step_in_name
from supervisor_core.checkpoint.state import CheckpointState

_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A checkpoint that a session could resume from."""

    path: str
    """The prefix, as a saver's ``restore`` takes it."""
    step: int | None
    """The step in its name; None where the name ends in no number."""
    source: Literal["state", "disk"]
    """Named by the state file, or only found on disk."""
    saved_at: float | None
    """Wall time: the state file's timestamp, else when its file was written; None where neither is known."""
    deletable: bool
    """Whether it lies in the logdir."""
    found: bool = True
    """Whether any file of it is there."""


class Survey:
    """Finds checkpoints; see `CheckpointStore` for how a path is resolved.

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

    def take(self, state: CheckpointState | None) -> list[Candidate]:
        """List the candidates: the state file's choice, the others it names from the last, then the rest on disk.

        Raises:
            OSError: if the directory is there and cannot be listed.
        """
        listing = self.list_names()
        found: dict[str, Candidate] = {}
        if state is not None:
            stamps = dict(zip(state.all_model_checkpoint_paths, state.timestamps, strict=False))
            for recorded in (state.model_checkpoint_path, *reversed(state.all_model_checkpoint_paths)):
                candidate = self._named(recorded, stamps.get(recorded), listing)
                found.setdefault(candidate.path, candidate)
        on_disk = []
        for name in self._names.prefixes(listing):
            path = os.path.join(self._directory, name)
            if path not in found and (f"{name}.index" in listing or self._is_legacy(path)):
                on_disk.append(self._candidate(path, "disk", None, deletable=True))
        on_disk.sort(key=lambda item: (-1 if item.step is None else item.step, item.saved_at or 0.0), reverse=True)
        return [*found.values(), *on_disk]

    def list_names(self) -> set[str]:
        """Return the names in the checkpoints' directory; none where it does not exist."""
        try:
            return set(self._filesystem.list_names(self._directory))
        except FileNotFoundError:
            return set()

    def _named(self, recorded: str, saved_at: float | None, listing: set[str]) -> Candidate:
        name = last_part(recorded)
        inside = os.path.join(self._directory, name)
        if files_of(name, listing):
            return self._candidate(inside, "state", saved_at, deletable=True)
        absolute = os.path.isabs(recorded) or "://" in recorded or bool(_DRIVE.match(recorded))
        path = recorded if absolute else os.path.normpath(os.path.join(self._logdir, recorded))
        if path != inside and self._exists(path):
            deletable = self._filesystem.contains(self._logdir, path)
            return self._candidate(path, "state", saved_at, deletable=deletable)
        return Candidate(
            path=inside, step=step_in_name(inside), source="state", saved_at=saved_at, deletable=True, found=False
        )

    def _candidate(
        self, path: str, source: Literal["state", "disk"], saved_at: float | None, *, deletable: bool
    ) -> Candidate:
        if saved_at is None:
            saved_at = self._modified_at(path)
        return Candidate(path=path, step=step_in_name(path), source=source, saved_at=saved_at, deletable=deletable)

    def _modified_at(self, path: str) -> float | None:
        filesystem, path = filesystem_for(path) if self._is_elsewhere(path) else (self._filesystem, path)
        for file in (f"{path}.index", *legacy.files_of(filesystem, path)):
            try:
                return filesystem.modified_at(file)
            except OSError:
                continue  # reading it will say what is wrong
        return None

    def _exists(self, path: str) -> bool:
        filesystem, path = filesystem_for(path) if self._is_elsewhere(path) else (self._filesystem, path)
        return filesystem.is_file(f"{path}.index") or any(map(filesystem.is_file, legacy.files_of(filesystem, path)))

    def _is_legacy(self, path: str) -> bool:
        return any(map(self._filesystem.is_file, legacy.files_of(self._filesystem, path)))

    def _is_elsewhere(self, path: str) -> bool:
        return ("://" in path or "://" in self._logdir) and not path.startswith(self._logdir)
