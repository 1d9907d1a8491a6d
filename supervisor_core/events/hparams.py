"""`hparams_of`: the hyperparameters of a run, as TensorBoard's HParams plugin keeps them.

TensorFlow, Keras, PyTorch, Lightning and JAX write them once, as metadata of a summary's value without a tensor:

    tag `_hparams_/session_start_info`, metadata {1 plugin_data {1 "hparams", 2 content}}
    content  {3 session_start_info {1 hparams {1 name, 2 value}, repeated}}
    value    {2 number, double | 3 text | 4 truth, varint}; others (null, lists) are not hyperparameters

(Source: plugin_data.proto of TensorBoard, struct.proto of protocol buffers.)
"""

from __future__ import annotations

import math
import struct

from supervisor_core.base.wire import DELIMITED, FIXED64, VARINT, Bytes, cut, fields, read_varint

HParam = str | float | bool
"""The value of a hyperparameter. Whole numbers are floats, too: the format has no others."""

HPARAMS_PLUGIN = "hparams"
HPARAMS_TAG = "_hparams_/session_start_info"
MAX_HPARAMS = 200
"""Of one run: the first by name."""
MAX_NAME_CHARS, MAX_TEXT_CHARS = 256, 256
"""Of a name, and of a value: longer ones are cut."""
MAX_CONTENT_BYTES = 1 << 20
"""Longer content is not read."""
_DOUBLE = struct.Struct("<d")


def hparams_of(data: Bytes, at: int, end: int) -> dict[str, HParam]:
    """Return the hyperparameters in some content of the plugin, by name, in the order of names; empty where it holds
    none.

    Raises:
        DamagedError: if the bytes are no message.
        IndexError: if ``data`` ends before a byte that is needed.

    Example:
        >>> entry = b"\\n\\x02lr" + b"\\x12\\x09\\x11" + struct.pack("<d", 0.1)
        >>> content = b"\\x1a" + bytes((len(entry) + 2,)) + b"\\n" + bytes((len(entry),)) + entry
        >>> hparams_of(content, 0, len(content))
        {'lr': 0.1}
    """
    found: dict[str, HParam] = {}
    if end - at > MAX_CONTENT_BYTES:
        return found
    for number, kind, start, stop in fields(data, at, end):
        if number == 3 and kind == DELIMITED:
            for inner, inner_kind, inner_start, inner_stop in fields(data, start, stop):
                if inner == 1 and inner_kind == DELIMITED:
                    name, value = _entry(data, inner_start, inner_stop)
                    if value is not None:
                        found[name] = value
    return {name: found[name] for name in sorted(found)[:MAX_HPARAMS]}


def _entry(data: Bytes, at: int, end: int) -> tuple[str, HParam | None]:
    name, value = "", None
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == DELIMITED:
            name = _text(data, start, stop, MAX_NAME_CHARS)
        elif number == 2 and kind == DELIMITED:
            value = _value(data, start, stop)
    return name, value


def _value(data: Bytes, at: int, end: int) -> HParam | None:
    value: HParam | None = None
    for number, kind, start, stop in fields(data, at, end):
        if number == 2 and kind == FIXED64:
            (double,) = _DOUBLE.unpack(cut(data, start, stop))
            value = float(double) if math.isfinite(double) else str(double)
        elif number == 3 and kind == DELIMITED:
            value = _text(data, start, stop, MAX_TEXT_CHARS)
        elif number == 4 and kind == VARINT:
            value = bool(read_varint(data, start, stop)[0])
        else:
            value = None  # the last one counts
    return value


def _text(data: Bytes, start: int, stop: int, most: int) -> str:
    text = cut(data, start, stop).decode("utf-8", "replace")
    return text if len(text) <= most else text[: most - 3] + "..."
