"""Columns of numbers as bytes: what JSON takes seconds for.

4 bytes                 length n of the header, little endian
n bytes                 the header: JSON, padded with spaces so that 4 + n is a multiple of 8
8 * length bytes each   the columns, in the header's order: little-endian float64
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def encode_columns(columns: Mapping[str, NDArray[Any]], header: Mapping[str, Any] | None = None) -> bytes:
    """Return columns of one length as bytes, with whatever else the header shall say.

    Example:
        >>> encoded = encode_columns({"step": np.array([1.0, 2.0])})
        >>> len(encoded) % 8, np.frombuffer(encoded, "<f8", offset=len(encoded) - 16).tolist()
        (0, [1.0, 2.0])
    """
    lengths = {len(column) for column in columns.values()}
    assert len(lengths) <= 1, f"columns of different lengths: {lengths}"
    described = {"v": 1, "length": max(lengths, default=0), "columns": list(columns), **(header or {})}
    text = json.dumps(described, allow_nan=False).encode()
    text += b" " * (-(4 + len(text)) % 8)
    packed = [np.ascontiguousarray(column, "<f8").tobytes() for column in columns.values()]
    return b"".join([struct.pack("<I", len(text)), text, *packed])
