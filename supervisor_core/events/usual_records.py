"""`read_usual`: consecutive records in the two layouts that writers use most, in a fraction of the time of the rest.

    one scalar        09 wall time  10 step  2a length  0a length  0a length tag  15 float
    own telemetry     09 wall time  10 step  2a length  0a length  0a length tag  42 length tensor

All bytes of a scalar between its step and its number are the same for all records of a tag: they are decoded once
(`supervisor_core.events.payload`), and compared from then on.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from supervisor_core import checksum
from supervisor_core.events.chunk_builder import LAST_WALL_SECS, ChunkBuilder, Lists, wall_secs
from supervisor_core.events.event_format import FOOTER_BYTES, HEADER_BYTES, MASK_DELTA, header
from supervisor_core.events.payload import decode, own_record
from supervisor_core.wire import DamagedError, read_varint, signed

TELEMETRY_PIECE_BYTES = 4 << 20
"""A piece ends after this much telemetry."""
LONGEST_BYTES = 4 * 1024
"""Of a payload. The checksum of a longer one that is damaged is not computed twice."""
_SHORTEST_BYTES = 16
_NUMBER_BYTES = 4
_SCALAR_BYTES = 128
"""Longest payload of a scalar that is compared."""
_U32 = struct.Struct("<I")
_HEADER = struct.Struct("<QI")
_BEGIN = struct.Struct("<BdBBB")
"""Of a payload: the key of the wall time, the wall time, the key of the step, and two bytes of the step."""
_FLOAT = struct.Struct("<f")


@lru_cache(maxsize=4096)
def _header_crc(length: int) -> int:
    crc: int = _U32.unpack_from(header(length), 8)[0]
    return crc


def read_usual(
    data: bytes, index: int, base: int, stop: int | None, builder: ChunkBuilder, most: int | None = None
) -> int:
    """Read records up to the first one that has another layout, is damaged, or is not whole; return its place.

    Args:
        data: a part of the file.
        index: where in it the first record begins.
        base: where in the file it begins.
        stop: no record that begins here or later in the part is read, nor any after `TELEMETRY_PIECE_BYTES` of
            telemetry.
        builder: receives them.
        most: how many are read; None: all.
    """
    walls: list[float] = []
    steps: list[int] = []
    columns: dict[bytes, Lists | None] = {}
    header_of, begin_of, number_of, crc_of = (
        _HEADER.unpack_from,
        _BEGIN.unpack_from,
        _U32.unpack_from,
        checksum.value,
    )
    begin, size = index, len(data)
    last = size - HEADER_BYTES - FOOTER_BYTES if stop is None else min(stop, size - HEADER_BYTES - FOOTER_BYTES)
    while index < last and len(walls) != most:
        length, header_crc = header_of(data, index)
        first = index + HEADER_BYTES
        end = first + length
        if not _SHORTEST_BYTES <= length <= LONGEST_BYTES or end + FOOTER_BYTES > size:
            break
        payload = data[first:end]
        crc = crc_of(payload)
        masked = ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF
        if masked != number_of(data, end)[0] or header_crc != _header_crc(length):
            break
        key, wall, step_key, low, high = begin_of(payload)
        if key != 0x09:
            break
        if step_key != 0x10:
            step, body = 0, 9
        elif low < 128:
            step, body = low, 11
        elif high < 128:
            step, body = low & 127 | high << 7, 12
        else:
            try:
                step, body = read_varint(payload, 10, length)
            except DamagedError:
                break
            step = signed(step)
        if not 0.0 <= wall <= LAST_WALL_SECS:
            wall = wall_secs(wall)
        layout = payload[body:-_NUMBER_BYTES] if length <= _SCALAR_BYTES else b""
        if layout in columns:
            lists = columns[layout]
        elif layout and (tag := _scalar_tag(layout)) is not None:
            lists = columns[layout] = builder.lists(tag)
        elif (record := own_record(payload, body, length)) is not None:
            walls.append(wall)
            steps.append(step)
            builder.add_record(base + index, wall, step, *record)
            index = end + FOOTER_BYTES
            if stop is not None and builder.telemetry_bytes >= TELEMETRY_PIECE_BYTES:
                break
            continue
        else:
            break
        if lists is None:
            builder.leave_out()
        else:
            offsets, own_steps, own_walls, values = lists
            offsets.append(base + index)
            own_steps.append(step)
            own_walls.append(wall)
            values.append(_FLOAT.unpack_from(payload, length - _NUMBER_BYTES)[0])
        walls.append(wall)
        steps.append(step)
        index = end + FOOTER_BYTES
    builder.add_read(walls, steps, index - begin)
    return index


@lru_cache(maxsize=16_384)
def _scalar_tag(layout: bytes) -> str | None:
    """Return the tag of the one scalar of an event by the bytes between its step and its number; None where they are
    something else."""
    whole = layout + bytes(_NUMBER_BYTES)
    try:
        event = decode(whole, 0, len(whole))
    except (DamagedError, IndexError):
        return None
    if len(event.scalars) != 1 or event.sessions or event.telemetry or event.step_at or event.wall_at:
        return None
    scalar = event.scalars[0]
    is_last = scalar.code == "<f" and scalar.value_at == (len(layout), len(whole))
    return scalar.tag if is_last else None
