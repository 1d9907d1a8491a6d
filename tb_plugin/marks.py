"""A run's saves as marks on an axis: each of them, or, where they are too many to draw, those of a pixel as one.

Good saves and failed ones are joined apart. Every save is counted in exactly one mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from supervisor_core.run.judge.run_json import plain
from supervisor_core.run.model.checkpoints import Checkpoint
from tb_plugin.run_data import RunView

GOOD, ON_DISK, DISK_KNOWN, INFERRED, DAMAGED, IN_DOUBT = 1, 2, 4, 8, 16, 32
"""Bits of a mark's ``flags``."""
PLAIN_MARKS_PER_PIXEL = 4
"""With at most this many saves per pixel, each is a mark."""
_MOST_ERRORS = 200
_ERROR_CHARACTERS = 300

_SAVE = ("at", "step", "save_secs", "blocked_secs", "bytes", "flags", "session")
_MEANS = ("save_secs", "blocked_secs", "bytes")

Floats = NDArray[np.float64]
Table = Mapping[str, Floats]


def checkpoint_marks(
    shown: RunView, *, by_step: bool, low: float, high: float, pixels: int
) -> tuple[Table, Mapping[str, Any]]:
    """Return the marks between two moments, or steps, bounds included: what ``checkpoint_marks`` answers as columns,
    and what it says of them.

    Args:
        shown: the run.
        by_step: whether the bounds are steps; else they are wall times.
        low: the lower bound; may be infinite, as the upper one. Without bounds, saves at an unknown place count too.
        high: the upper bound.
        pixels: how many columns the window will be drawn in.
    """
    table = shown.once(_saves)
    x = table["step" if by_step else "at"]
    is_whole = np.isinf(low) and np.isinf(high)
    chosen = np.arange(len(x)) if is_whole else np.flatnonzero((x >= low) & (x <= high))
    table = {name: values[chosen] for name, values in table.items()}
    thinned = len(chosen) > PLAIN_MARKS_PER_PIXEL * pixels
    is_good = table["flags"].astype(np.int64) & GOOD > 0
    if thinned:
        starts, order = _groups(x[chosen], table["session"], is_good, pixels)
        columns = _joined({name: values[order] for name, values in table.items()}, starts)
        mark = np.empty(len(order), np.int64)
        mark[order] = np.searchsorted(starts, np.arange(len(order)), side="right") - 1
    else:
        columns = {name: table[name] for name in _SAVE if name != "session"}
        mark = np.arange(len(chosen))
    failed = np.flatnonzero(~is_good)[-_MOST_ERRORS:]
    errors = {int(mark[index]): shown.run.checkpoints[int(chosen[index])].error for index in failed}
    texts = [[index, error[:_ERROR_CHARACTERS]] for index, error in errors.items() if error is not None]
    return columns, plain({"saves": len(chosen), "thinned": thinned, "errors": texts})


def _saves(shown: RunView) -> Table:
    """Return every save, oldest first; what is not known is NaN."""
    sessions: dict[str | None, int] = {}
    rows = [
        (
            item.at, item.step, item.secs, item.blocked_secs, item.bytes, _flags(item),
            sessions.setdefault(item.session, len(sessions)),
        )
        for item in shown.run.checkpoints
    ]  # fmt: skip
    table = np.array(rows, np.float64).reshape(-1, len(_SAVE))  # None becomes NaN
    return dict(zip(_SAVE, table.T, strict=True))


def _flags(item: Checkpoint) -> int:
    return (
        GOOD * item.ok
        | ON_DISK * (item.on_disk is True)
        | DISK_KNOWN * (item.on_disk is not None)
        | INFERRED * item.inferred
        | DAMAGED * (item.damage is not None or item.is_set_aside)
        | IN_DOUBT * (item.doubt is not None)
    )


def _groups(
    x: Floats, session: Floats, is_good: NDArray[np.bool_], pixels: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which saves become one mark: where each mark starts in an order of the saves, and that order.

    A pixel is a part of the time, or steps, that the sessions took: gaps between them may be drawn shorter.
    """
    between = np.diff(x)
    within = np.where((session[1:] == session[:-1]) & (between > 0), between, 0.0)
    pixel = float(within.sum()) / pixels
    order = np.argsort(~is_good, kind="stable")
    x, is_good = x[order], is_good[order]
    between = np.diff(x)
    advance = np.where(between > 0, np.minimum(between, pixel), 0.0)
    column = np.floor(np.cumsum(advance) / pixel) if pixel > 0 else np.zeros(len(advance))
    # Marks end at a pixel's edge, before a gap, where steps go back, and at a save whose place is not known.
    ends = (np.diff(column, prepend=0.0) > 0) | ~((between >= 0) & (between <= pixel)) | (is_good[1:] != is_good[:-1])
    return np.concatenate(([0], np.flatnonzero(ends) + 1)), order


def _joined(table: Table, starts: NDArray[np.int64]) -> Table:
    ends = np.append(starts[1:], len(table["at"])) - 1
    flags = table["flags"].astype(np.int64)
    known, there = flags & DISK_KNOWN > 0, flags & ON_DISK > 0
    return {
        "at": table["at"][starts],
        "step": table["step"][starts],
        **{name: _means(table[name], starts) for name in _MEANS},
        "flags": np.bitwise_or.reduceat(flags, starts).astype(np.float64),
        "last_at": table["at"][ends],
        "last_step": table["step"][ends],
        "count": (ends + 1 - starts).astype(np.float64),
        "on_disk": np.add.reduceat(there.astype(np.float64), starts),
        "gone": np.add.reduceat((known & ~there).astype(np.float64), starts),
    }


def _means(values: Floats, starts: NDArray[np.int64]) -> Floats:
    """Return the mean of what is known in each group; NaN where nothing is."""
    known = np.isfinite(values)
    counts = np.add.reduceat(known.astype(np.float64), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
