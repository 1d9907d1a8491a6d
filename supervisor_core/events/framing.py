"""TFRecord framing: what surrounds each event in an events file.

An events file is a plain concatenation of records, nothing before the first and nothing after the last. One record,
byte by byte, all numbers little-endian and unsigned:

    offset      bytes  content
    0           8      length of the payload, N
    8           4      masked CRC-32C of the eight bytes above
    12          N      payload: one serialized ``Event``
    12 + N      4      masked CRC-32C of the payload

The mask rotates the checksum right by 15 bits and adds 0xa282ead8 modulo 2**32; it keeps a checksum that is itself
stored within checksummed data from cancelling out. (Format: tensorflow/core/lib/io/record_writer.h.)
"""

from __future__ import annotations

import struct

from supervisor_core import checksum

HEADER_BYTES = 12
FOOTER_BYTES = 4
MASK_DELTA = 0xA282EAD8

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def mask(crc: int) -> int:
    """Return the masked form of a CRC-32C, as records store it."""
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def header(length: int) -> bytes:
    """Return the twelve bytes in front of a payload of ``length`` bytes."""
    size = _U64.pack(length)
    return size + _U32.pack(mask(checksum.value(size)))


def footer(*parts: bytes) -> bytes:
    """Return the four bytes behind a payload that is the concatenation of ``parts``, without concatenating them."""
    crc = 0
    for part in parts:
        crc = checksum.extend(crc, part)
    return _U32.pack(mask(crc))


def frame(payload: bytes) -> bytes:
    """Return the whole record of a payload."""
    return header(len(payload)) + payload + footer(payload)


def whole_records(data: bytes, limit: int) -> tuple[int, int]:
    """Count the records of ``data`` (which starts with one) that end within its first ``limit`` bytes.

    Returns:
        How many they are, and how many bytes they take.
    """
    count = end = 0
    while end + HEADER_BYTES <= limit:
        after = end + HEADER_BYTES + _U64.unpack_from(data, end)[0] + FOOTER_BYTES
        if after > limit:
            break
        count, end = count + 1, after
    return count, end
