"""The small JSON files of a logdir: what holds one object, and the record in it, checked by its fields' annotations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

LARGEST = 1 << 63
LARGEST_ATTEMPT = 10**15
"""Bound of a session's number: telemetry's readers, and programs that count in floats (2**53), accept no larger one."""
LATEST = 2.5e11
"""Seconds since the epoch, in the year 9892: later times cannot be formatted."""

_T = TypeVar("_T")


def parse_object(data: bytes, version: int) -> dict[str, Any]:
    """Return the JSON object in a file's bytes.

    Raises:
        ValueError: if there is none, or it is of another version.
    """
    try:
        raw = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON") from error  # whose text has a byte of the file
    if not isinstance(raw, dict) or raw.get("v") != version or raw["v"] is True:
        raise ValueError(f"it is not of version {version}")
    return raw


def record_of(cls: type[_T], raw: Mapping[str, Any], bounds: Mapping[str, int]) -> _T:
    """Return a dataclass whose fields have the values of these names; others are left out.

    Args:
        cls: the dataclass.
        raw: the values.
        bounds: of the counts that may not be negative: what they have to be less than.

    Raises:
        ValueError: if a field is missing, or has a value that it cannot hold; says which.
    """
    kinds = _kinds(cast("Any", cls))
    try:
        record = cls(**{name: value for name, value in raw.items() if name in kinds})
    except TypeError as error:
        raise ValueError(f"a field is missing: {error}") from error
    for name in kinds:
        value = getattr(record, name)
        if not _is_plausible(value, kinds[name]) or (name in bounds and not 0 <= value < bounds[name]):
            raise ValueError(f"{name} is {value!r:.80}")
    return record


@cache
def _kinds(cls: type[Any]) -> Mapping[str, tuple[type, ...]]:
    """Return of what kinds the values of a dataclass may be, by their fields."""
    hints = get_type_hints(cls)
    return {item.name: _kinds_of(hints[item.name]) for item in fields(cls)}


def _kinds_of(hint: Any) -> tuple[type, ...]:
    if isinstance(hint, UnionType):
        return tuple(kind for each in get_args(hint) for kind in _kinds_of(each))
    if get_origin(hint) is Mapping:  # of counts
        return (dict,)
    return (int, float) if hint is float else (hint,)


def _is_plausible(value: Any, kinds: tuple[type, ...]) -> bool:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        return False
    if isinstance(value, dict):
        return all(type(count) is int and abs(count) < LARGEST for count in value.values())
    if isinstance(value, (int, float)):
        return abs(value) < (LATEST if float in kinds else LARGEST)  # False for NaN
    return True
