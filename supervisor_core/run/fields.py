"""Fields of records, read from untrusted JSON: a value of the wrong type, negative, NaN, infinite or huge is None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LARGEST = 1e15
"""Above any valid time, duration or size, and small enough that sums are exact."""


def number(value: Any) -> float | None:
    """Return a number from 0 to `LARGEST`; None for anything else."""
    if type(value) is float and 0.0 <= value < LARGEST:  # most are
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < LARGEST:
        return None
    return float(value)


def whole(value: Any) -> int | None:
    """Return a number from 0 to `LARGEST`, without its fraction; None for anything else."""
    return None if number(value) is None else int(value)


MAX_TEXT = 4096
"""Characters kept of a path or an error."""


def text(value: Any, most: int = MAX_TEXT) -> str | None:
    """Return the first characters of a string; None for anything else."""
    return value[:most] if isinstance(value, str) else None


def truth(value: Any) -> bool | None:
    """Return a truth value; None for anything else."""
    return value if isinstance(value, bool) else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}
