"""`decode`: a record from its JSON object, by the annotations of its fields, which say what they hold.

The JSON is untrusted. A value that its field cannot hold counts as absent, and costs nothing but itself. Texts and
collections that are too long are cut. Records are well-formed as a rule, so msgspec decodes them at once; where it
refuses one, its fields are read one by one.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from msgspec import Meta, MsgspecError, convert

from supervisor_core.base.json_records import decoder_of

MAX_TEXT = 4096
"""Characters kept of a path or an error."""
MAX_NAME_CHARS = 256
"""Of a thread, a worker, a session."""
LARGEST = 10**15
"""Above any valid time, duration or size, and small enough that sums are exact."""

Number = Annotated[float, Meta(ge=0, lt=LARGEST)]
Whole = Annotated[int, Meta(ge=0, lt=LARGEST)]
Step = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
"""A step as any checkpoint may have it."""
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
Failure = Annotated[str, Meta(max_length=MAX_TEXT, extra={"unreadable": "not readable"})]
"""A text whose presence alone says something: what is no text counts as this one."""

_T = TypeVar("_T")
_Read = Callable[[Any], Any]
"""Returns what a field holds; None for what it cannot hold."""


def decode(cls: type[_T], data: str) -> _T:
    """Return a dataclass from a JSON object; fields that are absent have their defaults, unknown ones are left out.

    Raises:
        ValueError: if it is no JSON object.
        RecursionError: if it is nested too deep.
        TypeError: if a field without a default is absent.

    Example:
        >>> @dataclass
        ... class Stop:
        ...     step: Whole | None = None
        ...     error: Annotated[str, Meta(max_length=3)] = ""
        >>> decode(Stop, '{"step": "seven", "error": "disk full"}')
        Stop(step=None, error='dis')
    """
    try:
        return cast("_T", decoder_of(cast("Any", cls)).decode(data))
    except (MsgspecError, ValueError, RecursionError):
        values = json.loads(data, parse_int=float)  # which takes any number of digits
    if not isinstance(values, dict):
        raise ValueError(f"it holds {type(values).__name__}; expected a JSON object")
    return read_record(cls, values)


def read_record(cls: type[_T], values: Mapping[str, Any]) -> _T:
    """Return a dataclass with those of the values that its fields can hold; the others have their defaults.

    Raises:
        TypeError: if a field without a default is absent.
    """
    found = {}
    for name, read in _readers(cast("Any", cls)).items():
        value = values.get(name)
        if value is not None and (kept := read(value)) is not None:
            found[name] = kept
    return cls(**found)


def read_strictly(cls: type[_T], values: Any) -> _T:
    """Return a dataclass of values that all have to be what its fields can hold; absent ones have their defaults.

    Raises:
        ValueError: if one is not; says which.
    """
    decoder_of(cast("Any", cls))
    try:
        return convert(values, cls)
    except MsgspecError as error:
        raise ValueError(str(error)) from error


def values_of(item: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, for one that extends it."""
    return {name: getattr(item, name) for name in _names(cast("Any", type(item)))}


def replaced(item: _T, **changes: Any) -> _T:
    """Return a dataclass with other values in some of its fields: `dataclasses.replace`, in a third of the time."""
    cls: Any = type(item)
    return cast("_T", cls(**{name: getattr(item, name) for name in _names(cls)} | changes))


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(cls))


@cache
def _readers(cls: Any) -> Mapping[str, _Read]:
    hints = get_type_hints(cls, include_extras=True)
    return {item.name: _reader(hints[item.name]) for item in fields(cls)}


def _reader(hint: Any, most: int | None = None) -> _Read:
    """Return what reads one field; `most`: how much of it is kept."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        meta = arguments[1]
        read, unreadable = _reader(arguments[0], meta.max_length), (meta.extra or {}).get("unreadable")
        if meta.le is not None:
            return lambda value: None if (kept := read(value)) is None or kept > meta.le else kept
        return read if unreadable is None else lambda value: unreadable if (kept := read(value)) is None else kept
    if origin in (Union, types.UnionType):  # of something and None
        return _reader(arguments[0], most)
    if origin is Literal:
        return lambda value: value if isinstance(value, str) and value in arguments else None
    if origin is tuple:
        return _tuple(_reader(arguments[0]), most)
    if origin is Mapping:
        return _mapping(_reader(arguments[0]), _reader(arguments[1]), most)
    if is_dataclass(hint) and isinstance(hint, type):
        return lambda value: _nested(hint, value)
    simple: dict[Any, _Read] = {float: _number, int: _whole, bool: _truth}
    return simple[hint] if hint is not str else lambda value: value[:most] if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < LARGEST:
        return None
    return float(value)


def _whole(value: Any) -> int | None:
    return None if _number(value) is None else int(value)


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _tuple(read: _Read, most: int | None) -> _Read:
    def read_all(value: Any) -> Any:
        if not isinstance(value, list):
            return None
        return tuple([kept for item in value[:most] if (kept := read(item)) is not None])

    return read_all


def _mapping(read_key: _Read, read: _Read, most: int | None) -> _Read:
    def read_all(value: Any) -> Any:
        if not isinstance(value, dict):
            return None
        items = [(read_key(key), read(item)) for key, item in list(value.items())[:most]]
        return {key: kept for key, kept in items if key is not None and kept is not None}

    return read_all


def _nested(cls: type[_T], value: Any) -> _T | None:
    try:
        return read_record(cls, value) if isinstance(value, dict) else None
    except TypeError:  # lacks a field
        return None
