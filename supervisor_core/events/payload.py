"""`decode`: the scalars, session logs and telemetry of one serialized ``Event``, field by field.

The fields are those of `supervisor_core.events.event_format`. Of a ``Summary`` (field 1 repeated: a value) this reads:

    field of a value   content
    1 tag              string
    2 simple_value     float
    4, 5, 6            image, histogram, audio: skipped
    8 tensor           a number is a scalar; a string under ``supervisor/`` is telemetry
    9 metadata         {1 plugin_data {1 plugin_name, 2 content}}: of the HParams plugin (`hparams`)

and of a ``SessionLog``: 1 status, 2 checkpoint_path. All other fields are skipped by their length.

Of a ``TensorProto`` it reads the ones with a single number, or a single string:

    field  content                                   field  content
    1      dtype, varint                             8      string_val, bytes
    2      tensor_shape {2 dim {1 size}, 3 unknown}  10     int64_val, varints
    4      tensor_content, little-endian             11     bool_val, varints
    5      float_val                                 13     half_val, varints: the bits of a half or bfloat16
    6      double_val                                16     uint32_val, varints
    7      int_val, varints: 8 to 32 bits            17     uint64_val, varints

Repeated numbers are packed or not. A tensor without any is filled with zero. (Source: tensor.proto of TensorFlow.)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from supervisor_core.base.wire import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    Bytes,
    DamagedError,
    cut,
    fields,
    read_varint,
    signed,
)
from supervisor_core.events.chunk import SessionStatus
from supervisor_core.events.hparams import HPARAMS_PLUGIN, HPARAMS_TAG, HParam, hparams_of
from supervisor_core.events.telemetry import MAX_BYTES, PLUGIN_NAME, TAG_PREFIX

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
MAX_VALUES = 65_536
"""Limit of scalars, session logs and telemetry records in one event."""
MAX_PARSED_BYTES = 16 << 20
"""Limit of the bytes of one event's wanted values together; checked before any of them is copied out of the file."""
MAX_TAG_BYTES = 4096
"""An event with a scalar of a longer tag is refused."""
_MAX_PLUGIN_BYTES = 1024
_STATUS: dict[int, SessionStatus] = {1: "START", 2: "STOP", 3: "CHECKPOINT"}


@dataclass(slots=True)
class Scalar:
    """One number of a summary."""

    tag: str
    value: float
    tag_at: tuple[int, int]
    """Start and end of the tag's bytes."""
    value_at: tuple[int, int]
    """Start and end of the number's bytes."""
    code: str | None
    """The number's ``struct`` format; None where there is none."""


@dataclass(slots=True)
class Decoded:
    """The content of one event."""

    wall: float = 0.0
    wall_at: int | None = None
    """Offset of the wall time's eight bytes."""
    step: int = 0
    step_at: tuple[int, int] | None = None
    has_summary: bool = False
    scalars: list[Scalar] = field(default_factory=list)
    sessions: list[tuple[SessionStatus, str | None]] = field(default_factory=list)
    telemetry: list[tuple[str, str]] = field(default_factory=list)
    """Kind and JSON."""
    hparams: dict[str, HParam] | None = None
    """The hyperparameters of the run."""
    parsed_bytes: int = field(default=0, repr=False, compare=False)
    """Length of the values above in the file."""

    def admit(self, *spans: tuple[int, int]) -> None:
        """Count a value before it is read from these places, its tag or path first.

        Raises:
            DamagedError: if the number or the length of the values exceeds its limit.
        """
        if spans and spans[0][1] - spans[0][0] > MAX_TAG_BYTES:
            raise DamagedError(f"a tag or a path of {spans[0][1] - spans[0][0]:,} bytes, more than {MAX_TAG_BYTES:,}")
        self.parsed_bytes += sum(stop - start for start, stop in spans)
        if self.parsed_bytes > MAX_PARSED_BYTES:
            raise DamagedError(f"its values have more than {MAX_PARSED_BYTES:,} bytes")
        if len(self.scalars) + len(self.sessions) + len(self.telemetry) >= MAX_VALUES:
            raise DamagedError(f"it holds more than {MAX_VALUES:,} values")

    @property
    def wanted(self) -> bool:
        """Whether it holds more than its time and step."""
        return bool(self.scalars or self.sessions or self.telemetry or self.hparams)


def decode(data: Bytes, at: int, end: int) -> Decoded:
    """Decode the event that ``data`` holds from ``at`` to ``end``.

    Raises:
        DamagedError: if the bytes are no message.
        IndexError: if ``data`` ends before a byte that is needed.
    """
    out = Decoded()
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == FIXED64:
            out.wall, out.wall_at = _DOUBLE.unpack(cut(data, start, stop))[0], start
        elif number == 2 and kind == VARINT:
            out.step, out.step_at = signed(read_varint(data, start, stop)[0]), (start, stop)
        elif number == 5 and kind == DELIMITED:
            out.has_summary = True
            for inner, inner_kind, inner_start, inner_stop in fields(data, start, stop):
                if inner == 1 and inner_kind == DELIMITED:
                    _value(data, inner_start, inner_stop, out)
        elif number == 7 and kind == DELIMITED:
            _session(data, start, stop, out)
    return out


def _value(data: Bytes, at: int, end: int, out: Decoded) -> None:
    tag_at = at, at
    what = 0
    span = content = at, at
    plugin: str | None = None
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == DELIMITED:
            tag_at = start, stop
        elif number == 2 and kind == FIXED32:
            what, span = 2, (start, stop)
        elif number in (3, 4, 5, 6, 8) and kind == DELIMITED:  # a value holds one of these, and the last counts
            what, span = number, (start, stop)
        elif number == 9 and kind == DELIMITED:
            plugin, content = _plugin(data, start, stop)
    if plugin == HPARAMS_PLUGIN and content[0] < content[1] and _is_tag(data, tag_at, HPARAMS_TAG):
        out.hparams = hparams_of(data, *content) or out.hparams
    elif what == 2:
        out.admit(tag_at, span)
        value = _FLOAT.unpack(cut(data, *span))[0]
        out.scalars.append(Scalar(_text(data, tag_at), value, tag_at, span, "<f"))
    elif what == 8:
        found = element(data, *span)
        if found is None:
            return
        if found.number is not None:
            where = found.start, found.stop
            out.admit(tag_at, where)
            out.scalars.append(Scalar(_text(data, tag_at), found.number, tag_at, where, found.code))
        elif plugin in (None, PLUGIN_NAME) and _begins(data, tag_at, TAG_PREFIX):
            # No plugin: metadata is written once per file and tag.
            if found.stop - found.start > MAX_BYTES:
                raise DamagedError(f"a telemetry record of {found.stop - found.start:,} bytes, more than {MAX_BYTES:,}")
            out.admit(tag_at, (found.start, found.stop))
            tag = _text(data, tag_at)
            out.telemetry.append((tag.removeprefix(TAG_PREFIX), _text(data, (found.start, found.stop))))


def _is_tag(data: Bytes, tag_at: tuple[int, int], tag: str) -> bool:
    return tag_at[1] - tag_at[0] == len(tag) and _begins(data, tag_at, tag)


def _begins(data: Bytes, tag_at: tuple[int, int], text: str) -> bool:
    prefix = text.encode()
    return cut(data, tag_at[0], min(tag_at[1], tag_at[0] + len(prefix))) == prefix


def _plugin(data: Bytes, at: int, end: int) -> tuple[str | None, tuple[int, int]]:
    """Return the name of the plugin in some metadata, and where its content is."""
    name, content = None, (at, at)
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == DELIMITED:
            for inner, inner_kind, inner_start, inner_stop in fields(data, start, stop):
                if inner == 1 and inner_kind == DELIMITED:
                    name = _text(data, (inner_start, min(inner_stop, inner_start + _MAX_PLUGIN_BYTES)))
                elif inner == 2 and inner_kind == DELIMITED:
                    content = inner_start, inner_stop
    return name, content


def _session(data: Bytes, at: int, end: int, out: Decoded) -> None:
    status = 0
    path: tuple[int, int] | None = None
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == VARINT:
            status = read_varint(data, start, stop)[0]
        elif number == 2 and kind == DELIMITED:
            path = start, stop
    if status in _STATUS:
        out.admit(path or (at, at))
        out.sessions.append((_STATUS[status], None if path is None else _text(data, path)))


def _text(data: Bytes, span: tuple[int, int]) -> str:
    return cut(data, *span).decode("utf-8", "replace")


STRING, _BFLOAT16, _HALF = 7, 14, 19
_CODES = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<B", 17: "<H", 19: "<e"}
_CODES |= {22: "<I", 23: "<Q"}
_CONTENT = {dtype: struct.Struct(code) for dtype, code in {**_CODES, _BFLOAT16: "<H"}.items()}
_FIELD = {1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7, 9: 10, 10: 11, _BFLOAT16: 13, 17: 7, _HALF: 13, 22: 16, 23: 17}
"""Which field holds the numbers of a dtype."""
_HALF_BITS, _FLOAT_BITS = struct.Struct("<H"), struct.Struct("<I")


class Element(NamedTuple):
    """The one element of a tensor."""

    number: float | None
    """None for a string."""
    start: int
    """Where the string, or the number's own bytes, begin; where a default has no bytes, ``stop``."""
    stop: int
    code: str | None
    """How ``struct`` would read the number's bytes; None for a read_varint, a half, a bfloat16, a default, a string."""


def element(data: Bytes, at: int, end: int) -> Element | None:
    """Return the element of a serialized tensor; None where it has none or several, or is neither number nor string.

    Raises:
        DamagedError: if the bytes are no message.
    """
    dtype, size = 0, 1
    content: tuple[int, int] | None = None
    first: dict[int, tuple[int, int, int]] = {}
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == VARINT:
            dtype = read_varint(data, start, stop)[0]
        elif number == 2 and kind == DELIMITED:
            size *= _elements(data, start, stop)
        elif number == 4 and kind == DELIMITED:
            content = start, stop
        elif kind != DELIMITED or start < stop or number == 8:
            first.setdefault(number, (kind, start, stop))
    if size != 1 or (dtype != STRING and dtype not in _CONTENT):
        return None
    if dtype == STRING:
        kind, start, stop = first.get(8, (DELIMITED, end, end))
        return Element(None, start, stop, None) if kind == DELIMITED else None
    if content is not None and content[0] < content[1]:
        return _from_content(data, *content, dtype)
    if _FIELD[dtype] not in first:
        return Element(0.0, end, end, None)
    return _from_field(data, *first[_FIELD[dtype]], dtype)


def _elements(data: Bytes, at: int, end: int) -> int:
    """Number of elements of a shape; -1 where unknown."""
    size = 1
    for number, kind, start, stop in fields(data, at, end):
        if number == 2 and kind == DELIMITED:
            dim = 0
            for inner, inner_kind, inner_start, inner_stop in fields(data, start, stop):
                if inner == 1 and inner_kind == VARINT:
                    dim = signed(read_varint(data, inner_start, inner_stop)[0])
            size *= dim
        elif number == 3 and kind == VARINT and read_varint(data, start, stop)[0]:
            return -1
    return size


def _from_content(data: Bytes, start: int, stop: int, dtype: int) -> Element | None:
    coded = _CONTENT[dtype]
    if stop - start != coded.size:
        return None
    (bits,) = coded.unpack(cut(data, start, stop))
    if dtype == _BFLOAT16:
        return Element(_FLOAT.unpack(_FLOAT_BITS.pack(bits << 16))[0], start, stop, None)
    return Element(float(bits), start, stop, _CODES[dtype])


def _from_field(data: Bytes, kind: int, start: int, stop: int, dtype: int) -> Element | None:
    if dtype in (1, 2):
        coded, fixed = (_CONTENT[1], FIXED32) if dtype == 1 else (_CONTENT[2], FIXED64)
        if kind not in (fixed, DELIMITED):
            return None
        if stop - start < coded.size:
            raise DamagedError("a packed number is cut short")
        return Element(coded.unpack(cut(data, start, start + coded.size))[0], start, start + coded.size, _CODES[dtype])
    if kind not in (VARINT, DELIMITED):
        return None
    number = read_varint(data, start, stop)[0]
    if dtype == _HALF:
        value = float(struct.unpack("<e", _HALF_BITS.pack(number & 0xFFFF))[0])
    elif dtype == _BFLOAT16:
        value = float(_FLOAT.unpack(_FLOAT_BITS.pack((number & 0xFFFF) << 16))[0])
    else:
        value = float(number if dtype in (22, 23) else signed(number))
    return Element(value, start, stop, None)
