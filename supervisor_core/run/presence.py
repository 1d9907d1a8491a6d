"""`Presence`: which of a run's checkpoints are still on the disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from supervisor_core.run.model import Checkpoint

_HAS_STEP = re.compile(r"-\d+$")
DRIFT_STEPS = 3
"""By how many steps the original Supervisor's event may be ahead of the file it tells of."""


class Presence:
    """Joins checkpoints with what is on the disk; remembers the last answer, so that only changes cost."""

    def __init__(self) -> None:
        self._told: Sequence[Checkpoint] = ()
        self._joined: list[Checkpoint] = []

    def joined(self, told: Sequence[Checkpoint], present: Callable[[str], bool | None]) -> tuple[Checkpoint, ...]:
        """Return the checkpoints with their `Checkpoint.on_disk`.

        Of several saves under one name only the last can still be there.

        Args:
            told: as the sessions told of them, oldest first.
            present: says whether a checkpoint's files are there; None where it cannot be said.
        """
        newest = {saved.path: index for index, saved in enumerate(told) if saved.ok and not saved.inferred}
        result: list[Checkpoint] = []
        known = len(self._joined)
        for index, saved in enumerate(told):
            on_disk = self._on_disk(saved, newest.get(saved.path) == index, present)
            before = self._joined[index] if index < known and self._told[index] is saved else saved
            result.append(before if before.on_disk is on_disk else replace(saved, on_disk=on_disk))
        self._told, self._joined = told, result
        return tuple(result)

    def _on_disk(self, saved: Checkpoint, is_newest: bool, present: Callable[[str], bool | None]) -> bool | None:
        if saved.path is None or not saved.ok:
            return None
        if not saved.inferred or saved.step is None or _HAS_STEP.search(saved.path):
            there = present(saved.path)
            return False if there and not (is_newest or saved.inferred) else there
        answers = [present(f"{saved.path}-{saved.step - drift}") for drift in range(min(DRIFT_STEPS, saved.step) + 1)]
        return any(answers) if None not in answers else (True if any(answers) else None)
