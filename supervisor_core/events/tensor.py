"""A ``TensorProto`` that holds one number, or one string: the only tensors that scalars and telemetry come in.

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
from typing import NamedTuple

from supervisor_core.events.wire import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    Bytes,
    DamagedError,
    cut,
    fields,
    signed,
    varint,
)

STRING, _BFLOAT16, _HALF = 7, 14, 19
_CODES = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<B", 17: "<H", 19: "<e"}
_CODES |= {22: "<I", 23: "<Q"}
_CONTENT = {dtype: struct.Struct(code) for dtype, code in {**_CODES, _BFLOAT16: "<H"}.items()}
_FIELD = {1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7, 9: 10, 10: 11, _BFLOAT16: 13, 17: 7, _HALF: 13, 22: 16, 23: 17}
"""Which field holds the numbers of a dtype."""
_FLOAT = struct.Struct("<f")
_HALF_BITS, _FLOAT_BITS = struct.Struct("<H"), struct.Struct("<I")


class Element(NamedTuple):
    """The one element of a tensor."""

    number: float | None
    """None for a string."""
    start: int
    """Where the string, or the number's own bytes, begin; where a default has no bytes, ``stop``."""
    stop: int
    code: str | None
    """How ``struct`` would read the number's bytes; None for a varint, a half, a bfloat16, a default, a string."""


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
            dtype = varint(data, start, stop)[0]
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
    """How many elements a shape has; -1 where it does not say."""
    size = 1
    for number, kind, start, stop in fields(data, at, end):
        if number == 2 and kind == DELIMITED:
            dim = 0
            for inner, inner_kind, inner_start, inner_stop in fields(data, start, stop):
                if inner == 1 and inner_kind == VARINT:
                    dim = signed(varint(data, inner_start, inner_stop)[0])
            size *= dim
        elif number == 3 and kind == VARINT and varint(data, start, stop)[0]:
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
    number = varint(data, start, stop)[0]
    if dtype == _HALF:
        value = float(struct.unpack("<e", _HALF_BITS.pack(number & 0xFFFF))[0])
    elif dtype == _BFLOAT16:
        value = float(_FLOAT.unpack(_FLOAT_BITS.pack((number & 0xFFFF) << 16))[0])
    else:
        value = float(number if dtype in (22, 23) else signed(number))
    return Element(value, start, stop, None)
