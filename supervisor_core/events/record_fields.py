"""`decode`: a record from its JSON object, by the annotations of its fields, which say what they hold.

The JSON is untrusted. A value that its field cannot hold counts as absent; in a mapping it takes the mapping with it.
Texts and collections that are too long are cut, in mappings too.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from msgspec import Meta, MsgspecError, ValidationError, convert

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
_T = TypeVar("_T")
MAX_MENDED = 32
"""Values of a record that may be wrong; with more it is refused."""
_PLACE = re.compile(r" - at (?P<is_key>`key` in )?`\$(?P<path>(?:\.\w+|\[\d+\])+)(?P<is_inside>\[\.\.\.\][^`]*)?`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_LENGTH = re.compile(r"of length <= (\d+)")


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
    decoder = decoder_of(cast("Any", cls))
    try:
        return cast("_T", decoder.decode(data))
    except (MsgspecError, ValueError, RecursionError):
        values = json.loads(data, parse_int=lambda text: int(text) if len(text) < 20 else math.inf)
    if not isinstance(values, dict):
        raise ValueError(f"it holds {type(values).__name__}; expected a JSON object")
    for _ in range(MAX_MENDED):
        try:
            return convert(values, cls)
        except ValidationError as error:
            _mend(values, str(error))
    raise ValueError(f"more than {MAX_MENDED} of its values are wrong")


def _mend(values: Any, error: str) -> None:
    """Cut, or take out, the value that msgspec refused first.

    Raises:
        TypeError: if a field of the record itself is absent.
    """
    found = _PLACE.search(error)
    if found is None:
        raise TypeError(error)
    *above, last = [name or int(number) for name, number in _STEP.findall(found["path"])]
    for step in above:
        values = values[step]
    length = _LENGTH.search(error)
    is_in_mapping = found["is_key"] or found["is_inside"]
    if last == "error" and not above and length is None:  # what failed stays a failure
        values[last] = json.dumps(values[last])[:MAX_TEXT]
        return
    if length is None or (is_in_mapping and "`str`" not in error):
        del values[last]
        return
    value, most = values[last], int(length[1])
    if found["is_key"]:
        values[last] = {key[:most]: item for key, item in value.items()}
    elif is_in_mapping:
        values[last] = _with_short_texts(value, most)
    else:
        values[last] = dict(list(value.items())[:most]) if isinstance(value, dict) else value[:most]


def _with_short_texts(value: Any, most: int) -> Any:
    """Cut the texts in a mapping: msgspec does not say which one is too long."""
    if isinstance(value, dict):
        return {key: _with_short_texts(item, most) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_short_texts(item, most) for item in value]
    return value[:most] if isinstance(value, str) else value


def values_of(item: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, for one that extends it."""
    return {name: getattr(item, name) for name in _names(cast("Any", type(item)))}


def shared(cls: Any, *items: Any) -> dict[str, Any]:
    """Return the fields of some dataclasses that another one has, too, by the same name; the value of the last counts.

    Example:
        >>> from supervisor_core.process.identity import Machine
        >>> from supervisor_core.events.telemetry import SessionRecord
        >>> shared(SessionRecord, Machine(host="node-3"))
        {'host': 'node-3', 'boot': None}
    """
    names = _names(cls)
    return {name: value for item in items for name, value in values_of(item).items() if name in names}


def replaced(item: _T, **changes: Any) -> _T:
    """Return a dataclass with other values in some of its fields: `dataclasses.replace`, in a third of the time."""
    cls: Any = type(item)
    return cast("_T", cls(**{name: getattr(item, name) for name in _names(cls)} | changes))


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(cls))
