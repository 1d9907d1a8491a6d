"""What a JSON field holds, where anybody may have written it."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def whole(value: Any) -> int | None:
    """Return a whole number that fits 64 bits; None for anything else."""
    known = number(value)
    return None if known is None or not -(2**63) <= known < 2**63 else int(value)


def text(value: Any) -> str | None:
    """Return a string; None for anything else."""
    return value if isinstance(value, str) else None
