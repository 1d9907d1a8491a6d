"""The small JSON files of a logdir: what holds one object, and the record in it, checked by its fields' annotations.

Anybody with access to the logdir may have written them. A record is a dataclass or a NamedTuple. msgspec decides
whether a value fits its field; the error names the field, what was found and what was expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import Annotated, Any, TypeVar, cast

from msgspec import Meta, ValidationError, convert
from msgspec.json import Decoder

LARGEST = 1 << 63
LARGEST_ATTEMPT = 10**15
"""Bound of a session's number: telemetry's readers, and programs that count in floats (2**53), accept no larger one."""
LATEST = 2.5e11
"""Seconds since the epoch, in the year 9892: later times cannot be formatted."""
MAX_TEXT = 4096
"""Characters of a text that is shown."""

Integer = Annotated[int, Meta(ge=-LARGEST, le=LARGEST - 1)]
Count = Annotated[int, Meta(ge=0, le=LARGEST - 1)]
Attempt = Annotated[int, Meta(ge=0, lt=LARGEST_ATTEMPT)]
Secs = Annotated[float, Meta(gt=-LATEST, lt=LATEST)]
Moment = Annotated[float, Meta(ge=0, lt=LATEST)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Name = Annotated[str, Meta(min_length=1)]
MAX_DIGITS = 300

_FIELD = re.compile(r" - at `\$\.(\w+)`$")
_T = TypeVar("_T")
_building = Lock()
"""One thread at a time has msgspec look at a class: what it has found so far it keeps on the class, and a thread that
used a part of it would crash the process."""


def can_follow(attempt: int) -> bool:
    """Say whether the attempts after this one keep plausible numbers."""
    return 0 <= attempt <= LARGEST_ATTEMPT // 2


def parse_object(data: bytes, version: int) -> dict[str, Any]:
    """Return the JSON object in a file's bytes.

    Raises:
        ValueError: if there is none in ASCII, or it is of another version.
    """
    try:
        raw = json.loads(data.decode("ascii"), parse_int=_integer, parse_constant=no_number)
    except (ValueError, RecursionError):  # whose text may have a part of a file that is another's
        raise ValueError("it is not JSON") from None
    if not isinstance(raw, dict) or raw.get("v") != version or isinstance(raw["v"], bool):
        raise ValueError(f"it is not of version {version}")
    return raw


def _integer(text: str) -> int:
    """Return an integer that a float can hold: msgspec before 0.21 takes a larger one for a float of -1."""
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer has more than {MAX_DIGITS} digits")
    return int(text)


def record_of(cls: type[_T], raw: Any) -> _T:
    """Return a record whose fields have the values of these names; others are left out.

    Raises:
        ValueError: if a field is missing, or has a value that it cannot hold; says which, and what it can hold.
    """
    decoder_of(cast("Any", cls))
    try:
        return convert(raw, cls)
    except ValidationError as error:
        text = str(error)
        if (found := _FIELD.search(text)) is not None:
            text = f"{found[1]} is {raw[found[1]]!r:.80}: {text[: found.start()]}"
        raise ValueError(text) from None


@cache
def decoder_of(cls: Any) -> Decoder[Any]:
    """Return what decodes records of a class; also needed before `convert` looks at it, see `_building`."""
    with _building:
        return Decoder(cls)


def encode_object(version: int, fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of an object with these fields, in ASCII, without line breaks."""
    return json.dumps({"v": version, **fields}, ensure_ascii=True, separators=(",", ":")).encode()


def no_number(text: str) -> float:
    """Refuse NaN and infinities, which JSON does not have and Python's parser reads."""
    raise ValueError(f"{text} is no number")
