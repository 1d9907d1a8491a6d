"""`decide`: which checkpoints to keep, as a pure function.

The original's rules (tensorflow's ``python/training/saver.py``): the newest ``max_to_keep`` stay listed; one that drops
off the list is deleted, unless ``keep_every_n_hours`` have passed since the last one so spared. Two differences: those
hours run on across restarts, and a file outside the logdir is never deleted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Saved(NamedTuple):
    """A checkpoint on disk."""

    path: str
    saved_at: float
    """Wall time, seconds since the epoch."""
    deletable: bool = True
    """False for one outside the logdir."""


@dataclass(frozen=True)
class Retention:
    """What is to become of each checkpoint."""

    keep: tuple[Saved, ...]
    """Those that stay under management, oldest first: what the state file lists."""
    delete: tuple[Saved, ...]
    """Those to delete, oldest first."""
    preserved: tuple[Saved, ...]
    """Those that drop off the list and stay on disk for good."""
    last_preserved_at: float | None
    """From when the next ``keep_every_n_hours`` count; to be kept in the state file. None without checkpoints."""


def decide(
    checkpoints: Sequence[Saved],
    *,
    max_to_keep: int | None,
    keep_every_n_hours: float | None,
    last_preserved_at: float | None,
) -> Retention:
    """Say which checkpoints to keep listed, to delete, and to leave on disk.

    Args:
        checkpoints: oldest first, the newest last; of the same path twice, the later counts.
        max_to_keep: how many stay listed; None or 0 keeps every file, and lists the newest (as the original does, so
            that the state file does not grow forever).
        keep_every_n_hours: spare one for every so many hours; None spares none, 0 spares all.
        last_preserved_at: `Retention.last_preserved_at` of the time before, also from an earlier session; None at a
            run's first checkpoint: the hours count from the oldest checkpoint.

    Example:
        >>> old, new = Saved("model.ckpt-1", 100.0), Saved("model.ckpt-2", 200.0)
        >>> decide([old, new], max_to_keep=1, keep_every_n_hours=None, last_preserved_at=None).delete[0].path
        'model.ckpt-1'
    """
    by_path: dict[str, Saved] = {}
    for saved in checkpoints:
        by_path.pop(saved.path, None)  # a path that was saved again belongs where it was saved last
        by_path[saved.path] = saved
    ordered = list(by_path.values())
    if not ordered:
        return Retention((), (), (), last_preserved_at)
    since = ordered[0].saved_at if last_preserved_at is None else last_preserved_at
    since = min(since, ordered[-1].saved_at)  # or a clock that was once ahead would spare nothing for as long
    count = max_to_keep if max_to_keep else 1
    delete, preserved = [], []
    for saved in ordered[:-count]:
        spared = _spare(saved.saved_at, since, keep_every_n_hours) if saved.deletable and max_to_keep else since
        if spared is None:
            delete.append(saved)
        else:
            preserved.append(saved)
            since = spared
    return Retention(tuple(ordered[-count:]), tuple(delete), tuple(preserved), since)


def _spare(saved_at: float, since: float, keep_every_n_hours: float | None) -> float | None:
    """Return from when the hours count next if this one is spared, None if it is not.

    Whole periods, so that the hours do not drift; several at once after a pause, or all that follows would be spared.
    """
    if keep_every_n_hours is None:
        return None
    period = keep_every_n_hours * 3600.0
    if period <= 0:
        return saved_at
    elapsed = saved_at - since
    return since + period * (math.ceil(elapsed / period) - 1) if elapsed > period else None
