"""`Checkpoint`: a save, its files since then, and what is said of them (`Checkpoint.status`)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from supervisor_core.checkpoint.names import last_part
from supervisor_core.checkpoint.set_aside import DAMAGED, LAST_GOOD, REWOUND
from supervisor_core.events.record_fields import replaced
from supervisor_core.events.telemetry import CheckpointRecord, SkippedCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(CheckpointRecord):
    """A save, successful or not: its record, and the state of its files."""

    at: float | None
    """When it became durable, or failed."""
    on_disk: bool | None = None
    """Whether its files still exist; None where that was not checked."""
    damage: str | None = None
    """What was wrong with it when a later session passed it over; None where none did."""
    moved_to: str | None = None
    """Where it is if it is no longer at `path`: set aside as damaged or by `rewind`, or kept as the last good one."""
    inferred: bool = False

    @property
    def ok(self) -> bool:
        """Whether it was successful."""
        return self.error is None

    @property
    def is_there(self) -> bool | None:
        """Whether a session could be resumed from it; None where that is not known."""
        if not self.ok or self.damage is not None:
            return False
        return True if self._is_last_good else self.on_disk

    @property
    def status(self) -> str:
        """What it is now, in words; empty where that is not known."""
        if not self.ok:
            return f"failed: {self.error}"
        where = {True: "on disk", False: "deleted", None: ""}[self.on_disk]
        if self._is_last_good:
            where = f"on disk as {last_part(self.moved_to or '')}"
        elif self.is_set_aside:
            where = "damaged, set aside"
        elif self.moved_to is not None:
            return "set aside by rewind"
        elif self.damage is not None:
            where = f"damaged, {where}".removesuffix(", ")
        if self.damage is not None:
            return f"{where}: {self.damage}"
        if self.doubt is None or self.is_set_aside or where == "deleted":
            return where
        return f"{where}; in doubt: {self.doubt}".removeprefix("; ")

    @property
    def is_set_aside(self) -> bool:
        """Whether it was found damaged, and moved into a directory of its own."""
        return self.moved_to is not None and not last_part(self.moved_to).startswith((LAST_GOOD, REWOUND))

    @property
    def _is_last_good(self) -> bool:
        return self.moved_to is not None and last_part(self.moved_to).startswith(LAST_GOOD)


SaveKey = tuple[str | None, float | None, str | None]


def save_key(saved: Checkpoint) -> SaveKey:
    """Return what tells a save from the others of its run."""
    return saved.session, saved.at, saved.path


def passed_over(checkpoints: Sequence[Checkpoint], skipped: Sequence[SkippedCheckpoint]) -> Iterator[tuple[int, str]]:
    """Yield which checkpoints a later session has passed over, by index, and why.

    Args:
        checkpoints: those saved before it, oldest first.
        skipped: see `Session.skipped`.
    """
    for item in skipped:
        name = last_part(item.path)
        for index in reversed(range(len(checkpoints))):
            saved = checkpoints[index]
            if saved.ok and saved.path is not None and last_part(saved.path) == name:
                yield index, item.reason
                break


def last_good(checkpoints: Sequence[Checkpoint], before_step: int | None) -> Checkpoint | None:
    """Return the newest checkpoint that is there and not in doubt; None without one.

    Args:
        checkpoints: oldest first.
        before_step: only those of earlier steps count; None: all.
    """
    for saved in reversed(checkpoints):
        is_early = before_step is None or (saved.step is not None and saved.step < before_step)
        if saved.path is not None and saved.is_there is not False and saved.doubt is None and is_early:
            return saved
    return None


def newest_there(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """Return the newest successful save whose files are not known to be gone or damaged; None without one."""
    return next((saved for saved in reversed(checkpoints) if saved.ok and saved.is_there is not False), None)


Present = Callable[[str], "bool | None"]
"""Returns whether the files of the checkpoint at a path exist; None where unknown."""
MovedAt = Callable[[str], "float | None"]
"""Returns when what is at a path was set aside there; None where unknown."""

_HAS_STEP = re.compile(r"-\d+$")
_MOST_REWOUND = 100
"""How many checkpoints of one name are looked for that `rewind` has moved."""
_DRIFT_STEPS = 3
"""The step in the original Supervisor's event may be ahead of its file's by up to this number."""


class CheckpointFiles:
    """Sets `Checkpoint.on_disk` and `Checkpoint.moved_to`. Caches its results: a call replaces only changed ones."""

    def __init__(self) -> None:
        self._saves: Sequence[Checkpoint] = ()
        self._joined: list[Checkpoint] = []

    def joined(self, saves: Sequence[Checkpoint], present: Present, moved_at: MovedAt) -> tuple[Checkpoint, ...]:
        """Return the checkpoints with what is known of their files.

        Of several saves under one name only the last can still be there. One was set aside if it is the last before
        that; where it is not known when, the last that was passed over as damaged, else the last of all.

        Args:
            saves: from the sessions' records, oldest first.
            present: called for each path, newest first; again for one of which nothing is known.
            moved_at: called for what is set aside under a name that several saves had.
        """
        if saves is not self._saves:
            known = zip(self._saves, self._joined, strict=True)
            kept = [joined for (before, joined), saved in zip(known, saves, strict=False) if before is saved]
            self._joined = [*kept, *saves[len(kept) :]] if len(kept) == len(self._saves) else list(saves)
            self._saves = saves
        named: dict[str, list[int]] = {}
        newest: dict[str, int] = {}
        damaged: dict[str, int] = {}
        for index, saved in enumerate(saves):
            if not saved.inferred and saved.ok and saved.path is not None:
                newest[saved.path] = index
                named.setdefault(saved.path, []).append(index)
                if saved.damage is not None:
                    damaged[saved.path] = index
        answers: list[bool | None] = [None] * len(saves)
        for index in reversed(range(len(saves))):
            saved = saves[index]
            if saved.inferred:
                answers[index] = _inferred_on_disk(saved, present)
            elif saved.ok and saved.path is not None:
                is_there = present(saved.path)
                answers[index] = is_there if index == newest[saved.path] or is_there is None else False
        for index, saved in enumerate(saves):  # an older one may have shown where the run is by now
            if answers[index] is None and saved.ok and saved.path is not None and not saved.inferred:
                answers[index] = False if present(saved.path) is False else None
        if not any(answers[index] for index, saved in enumerate(saves) if saved.inferred):
            # Where none of another writer's is there, this may be a copy of its events files alone.
            answers = [None if saved.inferred else answer for saved, answer in zip(saves, answers, strict=True)]
        moved: dict[int, str] = {}
        for path, indices in named.items():
            if all(answers[index] is not False for index in indices):
                continue
            for place in _places_aside(path, present):
                at = moved_at(place) if len(indices) > 1 else None
                before = [index for index in indices if at is not None and (saves[index].at or 0.0) <= at]
                index = before[-1] if before else damaged.get(path, newest[path])
                if answers[index] is False:
                    moved.setdefault(index, place)
        for index, joined in enumerate(self._joined):
            on_disk, moved_to = answers[index], moved.get(index)
            if joined.on_disk is not on_disk or joined.moved_to != moved_to:
                self._joined[index] = replaced(joined, on_disk=on_disk, moved_to=moved_to)
        return tuple(self._joined)


def _places_aside(path: str, present: Present) -> Iterator[str]:
    """Yield where checkpoints are that had this path."""
    name = last_part(path)
    directory = path.removesuffix(name)
    yield from filter(present, (f"{path}{DAMAGED}", f"{directory}{LAST_GOOD}{name}"))
    rewound = (
        f"{directory}{REWOUND}{number}{name}" for number in ("", *(f"{each}-" for each in range(2, _MOST_REWOUND)))
    )
    yield from itertools.takewhile(present, rewound)


def _inferred_on_disk(saved: Checkpoint, present: Present) -> bool | None:
    """Return whether a checkpoint of another writer's event exists; the event has no step, or one slightly too high."""
    if saved.path is None:
        return None
    if saved.step is None or _HAS_STEP.search(saved.path):
        return present(saved.path)
    answers = [present(f"{saved.path}-{saved.step - drift}") for drift in range(min(_DRIFT_STEPS, saved.step) + 1)]
    return True if any(answers) else None if None in answers else False
