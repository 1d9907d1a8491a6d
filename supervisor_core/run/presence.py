"""`Presence`: which of a run's checkpoints are still on the disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from supervisor_core.run.model import Checkpoint

Present = Callable[[str], "bool | None"]
"""Says whether the files of the checkpoint at a path are there; None where it cannot be said."""

_HAS_STEP = re.compile(r"-\d+$")
DRIFT_STEPS = 3
"""By how many steps the original Supervisor's event may be ahead of the file it tells of."""


class Presence:
    """Joins checkpoints with what is on the disk. Remembers what it has joined, so that a look costs one question per
    checkpoint, and only what has changed is recreated."""

    def __init__(self) -> None:
        self._told: Sequence[Checkpoint] = ()
        self._joined: list[Checkpoint] = []
        self._paths: list[str | None] = []
        self._newest: dict[str, int] = {}
        self._overwritten: set[int] = set()

    def joined(self, told: Sequence[Checkpoint], present: Present) -> tuple[Checkpoint, ...]:
        """Return the checkpoints with their `Checkpoint.on_disk`.

        Of several saves under one name only the last can still be there.

        Args:
            told: as the sessions told of them, oldest first.
            present: asked for each path, the newest first.
        """
        if told is not self._told:
            self._take(told)
        answers: list[bool | None] = [None] * len(told)
        for index in reversed(range(len(told))):
            path = self._paths[index]
            if path is not None:
                answers[index] = present(path)
            elif told[index].inferred:
                answers[index] = _inferred_on_disk(told[index], present)
        for index in self._overwritten:
            answers[index] = None if answers[index] is None else False
        for index, saved in enumerate(self._joined):
            if saved.on_disk is not answers[index]:
                self._joined[index] = replace(saved, on_disk=answers[index])
        return tuple(self._joined)

    def _take(self, told: Sequence[Checkpoint]) -> None:
        same = 0
        for known, saved in zip(self._told, told, strict=False):
            if known is not saved:
                break
            same += 1
        if same < len(self._told):  # not only added to
            same = 0
            self._joined, self._paths, self._newest = [], [], {}
            self._overwritten = set()
        self._told = told
        for index in range(same, len(told)):
            saved = told[index]
            self._joined.append(saved)
            self._paths.append(None if saved.inferred or not saved.ok else saved.path)
            if not saved.inferred and saved.ok and saved.path is not None:
                if saved.path in self._newest:
                    self._overwritten.add(self._newest[saved.path])
                self._newest[saved.path] = index


def _inferred_on_disk(saved: Checkpoint, present: Present) -> bool | None:
    """Ask for a checkpoint that another writer's event tells of: without its step, or with one a little too high."""
    if saved.path is None:
        return None
    if saved.step is None or _HAS_STEP.search(saved.path):
        return present(saved.path)
    answers = [present(f"{saved.path}-{saved.step - drift}") for drift in range(min(DRIFT_STEPS, saved.step) + 1)]
    return True if any(answers) else None if None in answers else False
