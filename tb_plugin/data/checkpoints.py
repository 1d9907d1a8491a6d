"""Saves, good and bad: a page of them to read, all of them to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from supervisor_core.run.model import Checkpoint, Run
from supervisor_core.run.plain import checkpoint_json, plain

GOOD, ON_DISK, DISK_KNOWN, INFERRED = 1, 2, 4, 8
"""Bits of a mark's ``flags``."""
_MOST_ERRORS = 200
_ERROR_CHARACTERS = 300


def checkpoint_page(run: Run, offset: int, limit: int, *, oldest_first: bool) -> dict[str, Any]:
    """Return a page of saves; ``offset`` counts from that end."""
    total = len(run.checkpoints)
    if oldest_first:
        page = run.checkpoints[offset : offset + limit]
    else:
        page = run.checkpoints[max(0, total - offset - limit) : max(0, total - offset)][::-1]
    return {"v": 1, "total": total, "offset": offset, "checkpoints": [plain(_checkpoint(item)) for item in page]}


def checkpoint_marks(run: Run, offset: int) -> tuple[Mapping[str, NDArray[np.float64]], Mapping[str, Any]]:
    """Return the saves from one on as columns, oldest first, and what the header says of all of them.

    Files of old saves go while new ones come, so the flags are of all, as runs of equal ones.
    """
    total = len(run.checkpoints)
    offset = min(offset, total)
    flags = [_flags(item) for item in run.checkpoints]
    failed = [index for index, item in enumerate(run.checkpoints) if item.error is not None][-_MOST_ERRORS:]
    previous = run.checkpoints[offset - 1] if offset else None
    header = plain(
        {
            "offset": offset,
            "previous": None if previous is None else [previous.at, previous.step],
            "flags": [[len(list(equal)), value] for value, equal in groupby(flags)],
            "errors": [[index, (run.checkpoints[index].error or "")[:_ERROR_CHARACTERS]] for index in failed],
        }
    )
    return _columns(run.checkpoints[offset:]), header


def _columns(items: Sequence[Checkpoint]) -> Mapping[str, NDArray[np.float64]]:
    return {
        "at": _column([item.at for item in items]),
        "step": _column([item.step for item in items]),
        "save_secs": _column([item.save_secs for item in items]),
        "blocked_secs": _column([item.blocked_secs for item in items]),
        "bytes": _column([item.bytes for item in items]),
        "flags": _column([_flags(item) for item in items]),
    }


def _checkpoint(item: Checkpoint) -> dict[str, Any]:
    return {
        **checkpoint_json(item),
        "session": item.session,
        "consistent": item.consistent,
        "verified": item.verified,
        "inferred": item.inferred,
    }


def _flags(item: Checkpoint) -> int:
    return (
        GOOD * item.ok
        | ON_DISK * (item.on_disk is True)
        | DISK_KNOWN * (item.on_disk is not None)
        | INFERRED * item.inferred
    )


def _column(values: list[Any]) -> NDArray[np.float64]:
    return np.array(values, np.float64)  # None becomes NaN
