"""A run's checkpoints: which of them are still on disk, and which steps are in none of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from supervisor_core.run.model import Checkpoint, Recovery, RunState, Session

Present = Callable[[str], "bool | None"]
"""Returns whether the files of the checkpoint at a path exist; None where unknown."""

_HAS_STEP = re.compile(r"-\d+$")
DRIFT_STEPS = 3
"""The step in the original Supervisor's event may be ahead of its file's by up to this number."""


class Presence:
    """Sets `Checkpoint.on_disk`. Caches its results: a call asks once per checkpoint and replaces only changed ones."""

    def __init__(self) -> None:
        self._saves: Sequence[Checkpoint] = ()
        self._joined: list[Checkpoint] = []
        self._paths: list[str | None] = []
        self._newest: dict[str, int] = {}
        self._overwritten: set[int] = set()

    def joined(self, saves: Sequence[Checkpoint], present: Present) -> tuple[Checkpoint, ...]:
        """Return the checkpoints with their `Checkpoint.on_disk`.

        Of several saves under one name only the last can still be there.

        Args:
            saves: from the sessions' records, oldest first.
            present: called for each path, newest first.
        """
        if saves is not self._saves:
            self._take(saves)
        answers: list[bool | None] = [None] * len(saves)
        for index in reversed(range(len(saves))):
            path = self._paths[index]
            if path is not None:
                answers[index] = present(path)
            elif saves[index].inferred:
                answers[index] = _inferred_on_disk(saves[index], present)
        for index in self._overwritten:
            answers[index] = None if answers[index] is None else False
        for index, saved in enumerate(self._joined):
            if saved.on_disk is not answers[index]:
                self._joined[index] = replace(saved, on_disk=answers[index])
        return tuple(self._joined)

    def _take(self, saves: Sequence[Checkpoint]) -> None:
        same = 0
        for known, saved in zip(self._saves, saves, strict=False):
            if known is not saved:
                break
            same += 1
        if same < len(self._saves):  # not only added to
            same = 0
            self._joined, self._paths, self._newest = [], [], {}
            self._overwritten = set()
        self._saves = saves
        for index in range(same, len(saves)):
            saved = saves[index]
            self._joined.append(saved)
            self._paths.append(None if saved.inferred or not saved.ok else saved.path)
            if not saved.inferred and saved.ok and saved.path is not None:
                if saved.path in self._newest:
                    self._overwritten.add(self._newest[saved.path])
                self._newest[saved.path] = index


def _inferred_on_disk(saved: Checkpoint, present: Present) -> bool | None:
    """Return whether a checkpoint of another writer's event exists; the event has no step, or one slightly too high."""
    if saved.path is None:
        return None
    if saved.step is None or _HAS_STEP.search(saved.path):
        return present(saved.path)
    answers = [present(f"{saved.path}-{saved.step - drift}") for drift in range(min(DRIFT_STEPS, saved.step) + 1)]
    return True if any(answers) else None if None in answers else False


class _Saved(NamedTuple):
    step: int
    is_checkpoint: bool
    """Whether a checkpoint of that step exists; else nothing is saved."""


class Unsaved(NamedTuple):
    """Steps in no checkpoint."""

    after_step: int
    steps: int
    saved_step: int | None
    """The step of the last checkpoint; None without one."""


def at_risk_after(
    state: RunState,
    step: int | None,
    sessions: Sequence[Session],
    checkpoints: Sequence[Checkpoint],
    recoveries: Sequence[Recovery],
) -> Unsaved | None:
    """Return the steps of a run that are at risk; None where none are, or it is unknown.

    Steps are at risk in a run that is lost or has failed, in one that ended otherwise after a failed save, and in a
    live one without a successful save.
    """
    last = sessions[-1] if sessions else None
    if last is None or last.inferred or step is None:
        return None
    tried = [saved for saved in checkpoints if saved.session == last.id]
    if state in ("running", "stalled"):
        is_at_risk = bool(checkpoints) and not any(saved.ok for saved in checkpoints)
    else:
        is_at_risk = state in ("lost", "failed") or (bool(tried) and not tried[-1].ok)
    if not is_at_risk:
        return None
    saved = _saved(last, checkpoints, tried, recoveries)
    if step <= saved.step:
        return None
    return Unsaved(saved.step, step - saved.step, saved.step if saved.is_checkpoint else None)


def _saved(
    last: Session, checkpoints: Sequence[Checkpoint], tried: Sequence[Checkpoint], recoveries: Sequence[Recovery]
) -> _Saved:
    own = _newest_good(tried)
    for recovery in reversed(recoveries):
        if recovery.session == last.id and recovery.to_step is not None and recovery.restored_checkpoint is not None:
            if own is None or own.at is None or recovery.at > own.at:
                return _Saved(recovery.to_step, True)
            break
    has_begun = last.first_step is not None and not last.adopted  # else the earlier checkpoints count
    newest = own if own is not None or has_begun else _newest_good(checkpoints)
    if newest is not None and newest.step is not None:
        return _Saved(newest.step, True)
    if last.restored_step is not None and has_begun:
        return _Saved(last.restored_step, True)
    return _Saved(last.first_step or 0 if has_begun else 0, False)


def _newest_good(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    for saved in reversed(checkpoints):
        if saved.ok and saved.path is not None and saved.step is not None and saved.on_disk is not False:
            return saved
    return None
