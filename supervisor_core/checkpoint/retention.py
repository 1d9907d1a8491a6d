"""`decide`: which checkpoints to keep, as a pure function.

The original's rules (tensorflow's ``python/training/saver.py``): the newest ``max_to_keep`` stay listed; one that drops
off the list is deleted, unless ``keep_every_n_hours`` have passed since the last one that was preserved. Three
differences: those hours run on across restarts; a file outside the logdir is never deleted; and while the oldest listed
checkpoint is in doubt (`Doubt`), the last good one before it stays, too: until ``max_to_keep`` good ones have followed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from msgspec import Meta

from supervisor_core.base.json_records import MAX_TEXT, Text

MAX_CHARS = 300
"""Of an error's text."""
MAX_LOSSES = 3
"""How many losses are named."""
MAX_TAGS = 10_000
"""Of losses that are read."""


class Doubt(NamedTuple):
    """Why a checkpoint is in doubt.

    It was saved after an error, or the newest value of a loss was NaN or infinite, or one of its arrays has NaN. All
    others are good, and the newest good one is never deleted (`decide`).
    """

    text: Text
    """One sentence, or several."""
    losses: Annotated[tuple[Text, ...], Meta(max_length=MAX_TAGS)] = ()
    """Tags of the losses whose newest values were NaN or infinite: after a resume they count as such until the session
    has logged a new one."""


def doubt_of(error: str | None, losses: Sequence[str], array: str | None) -> Doubt | None:
    """Return what speaks against a checkpoint; None where nothing does.

    Args:
        error: the error that ended the training before it was saved.
        losses: tags of the losses whose newest values are NaN or infinite.
        array: the name of one of its arrays, or of its files, that has NaN.

    Example:
        >>> doubt_of(None, ["train/loss"], None).text
        'The newest value of "train/loss" is NaN or infinite.'
    """
    texts = []
    if error is not None:
        words = " ".join(error.split())
        texts.append(f"It was saved after an error: {words[:MAX_CHARS]}")
    if losses:
        named = ", ".join(f'"{tag}"' for tag in losses[:MAX_LOSSES])
        more = f" (and of {len(losses) - MAX_LOSSES} more losses)" if len(losses) > MAX_LOSSES else ""
        texts.append(f"The newest value of {named}{more} is NaN or infinite.")
    if array is not None:
        texts.append(f'There is NaN in "{array}".')
    known = tuple(tag for tag in losses if len(tag) <= MAX_TEXT)[:MAX_TAGS]
    return Doubt(" ".join(texts)[:MAX_TEXT], known) if texts else None


class Saved(NamedTuple):
    """A checkpoint on disk."""

    path: str
    saved_at: float
    """Wall time, seconds since the epoch."""
    deletable: bool = True
    """False for one outside the logdir."""
    in_doubt: bool = False
    """See `Doubt`."""


@dataclass(frozen=True)
class Retention:
    """Which checkpoints to list, to delete, and to leave."""

    keep: tuple[Saved, ...]
    """Those that the state file lists, oldest first."""
    delete: tuple[Saved, ...]
    """Those to delete, oldest first."""
    preserved: tuple[Saved, ...]
    """Those that are no longer listed and stay on disk."""
    last_good: Saved | None
    """The newest good one, where the oldest that is listed is in doubt: neither listed nor deleted, and decided again
    by the next save."""
    last_preserved_at: float | None
    """Start of the next ``keep_every_n_hours``; stored in the state file. None without checkpoints."""

    @property
    def kept(self) -> tuple[Saved, ...]:
        """Those that are to stay, by these rules or the next save's: the last good one, then those that are listed."""
        return self.keep if self.last_good is None else (self.last_good, *self.keep)


def decide(
    checkpoints: Sequence[Saved],
    *,
    max_to_keep: int | None,
    keep_every_n_hours: float | None,
    last_preserved_at: float | None,
) -> Retention:
    """Decide which checkpoints to list, to delete, and to leave on disk.

    Args:
        checkpoints: oldest first; of two with the same path the later counts.
        max_to_keep: number of listed checkpoints; None or 0 keeps every file and lists the newest (as the original
            does, so that the state file does not grow without limit).
        keep_every_n_hours: preserve one checkpoint per period of this length; None preserves none, 0 all.
        last_preserved_at: `Retention.last_preserved_at` of the decision before, also of an earlier session; None at a
            run's first checkpoint: the hours count from the oldest one.

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
        return Retention((), (), (), None, last_preserved_at)
    since = ordered[0].saved_at if last_preserved_at is None else last_preserved_at
    since = min(since, ordered[-1].saved_at)  # a clock that was once ahead must not suspend the hours until then
    count = max_to_keep if max_to_keep else 1
    keep, older = ordered[-count:], ordered[:-count]
    newest_good = next((saved for saved in reversed(older) if not saved.in_doubt), None)
    last_good: Saved | None = None
    delete, preserved = [], []
    for saved in older:
        if not (saved.deletable and max_to_keep):
            preserved.append(saved)
        elif (preserved_at := _preserved_at(saved.saved_at, since, keep_every_n_hours)) is not None:
            preserved.append(saved)
            since = preserved_at
        elif saved is newest_good and keep[0].in_doubt:
            last_good = saved
        else:
            delete.append(saved)
    return Retention(tuple(keep), tuple(delete), tuple(preserved), last_good, since)


def _preserved_at(saved_at: float, since: float, keep_every_n_hours: float | None) -> float | None:
    """Return the start of the next period if this checkpoint is preserved, None if it is not.

    Whole periods, so that the hours do not drift; several at once after a pause, or all that follow would be preserved.
    """
    if keep_every_n_hours is None:
        return None
    period = keep_every_n_hours * 3600.0
    if period <= 0:
        return saved_at
    elapsed = saved_at - since
    return since + period * (math.ceil(elapsed / period) - 1) if elapsed > period else None
