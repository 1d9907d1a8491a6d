"""`find_beats`: the heartbeats of a block, all at once, without decoding their JSON.

They are in the layout of our writer, see `supervisor_core.events.usual_records`, each length in two bytes:

    09 wall time  10 step  2a length  0a length  0a 14 "supervisor/heartbeat"  42 length  08 07 12 00  42 length  JSON
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from supervisor_core import checksum
from supervisor_core.events.event_format import HEADER_BYTES
from supervisor_core.events.vector_decode import Int64Array, unmask

FEWEST = 16
"""Fewer are read one by one."""
_TAG = b"supervisor/heartbeat"
_STEP_AT = 10
_LONGEST_STEP = 9
_JSON_AFTER = 18 + len(_TAG)
"""Bytes from the end of the step to the JSON."""
_HEAD_BYTES = _STEP_AT + _LONGEST_STEP + _JSON_AFTER
_SHORTEST_BYTES, _LONGEST_BYTES = 256, 1 << 14
_LENGTHS_AT = (1, 4, 9 + len(_TAG), 16 + len(_TAG))
"""Of the summary, the value, the tensor and the JSON, in bytes after the step; each counts from its own end on."""
_FIXED = b"\x2a\x00\x00\x0a\x00\x00\x0a" + bytes((len(_TAG),)) + _TAG + b"\x42\x00\x00\x08\x07\x12\x00\x42\x00\x00"
_IS_FIXED = np.array([at not in {each + byte for each in _LENGTHS_AT for byte in (0, 1)} for at in range(len(_FIXED))])


@dataclass(frozen=True, slots=True)
class Beats:
    """Heartbeats whose checksums are right."""

    numbers: Int64Array
    """Which of the records they are."""
    walls: NDArray[np.float64]
    steps: Int64Array
    texts: list[bytes]
    """The JSON of each."""


def find_beats(block: bytes, starts: Int64Array, lengths: Int64Array, numbers: Int64Array) -> Beats:
    """Return the heartbeats among records.

    Args:
        block: the bytes.
        starts: the offset of each record in it.
        lengths: the length of each one's payload.
        numbers: those that may be heartbeats.
    """
    first, long = starts[numbers] + HEADER_BYTES, lengths[numbers]
    fits = (long >= _SHORTEST_BYTES) & (long < _LONGEST_BYTES)
    numbers, first, long = numbers[fits], first[fits], long[fits]
    if len(numbers) < FEWEST:
        return _beats(block, [], numbers[:0])
    heads = _rows(block, first, _HEAD_BYTES)
    step_bytes = np.argmin(heads[:, _STEP_AT : _STEP_AT + _LONGEST_STEP] >= 0x80, axis=1) + 1
    is_event = (heads[:, 0] == 0x09) & (heads[:, _STEP_AT - 1] == 0x10)
    found = []
    for size in np.unique(step_bytes[is_event]).tolist():
        chosen = np.flatnonzero(is_event & (step_bytes == size))
        at = _STEP_AT + size
        rest = heads[chosen, at : at + _JSON_AFTER]
        good = (rest[:, _IS_FIXED] == np.frombuffer(_FIXED, np.uint8)[_IS_FIXED]).all(axis=1)
        for place in _LENGTHS_AT:
            low, high = rest[:, place].astype(np.int64), rest[:, place + 1].astype(np.int64)
            good &= (low >= 0x80) & (high < 0x80) & ((low & 0x7F | high << 7) == long[chosen] - at - place - 2)
        chosen = chosen[good]
        steps = np.zeros(len(chosen), np.int64)
        for byte in range(size):
            steps |= (heads[chosen, _STEP_AT + byte] & 0x7F).astype(np.int64) << 7 * byte
        walls = np.ascontiguousarray(heads[chosen, 1:9]).view("<f8").ravel()
        found.append((numbers[chosen], first[chosen], long[chosen], walls, steps, at + _JSON_AFTER))
    return _beats(block, found, numbers[:0])


_Group = tuple[Int64Array, Int64Array, Int64Array, NDArray[np.float64], Int64Array, int]


def _beats(block: bytes, groups: list[_Group], none: Int64Array) -> Beats:
    """Return the records of several groups whose checksums are right, in their order."""
    crc_of = checksum.value
    numbers, walls, steps, texts = [none], [np.zeros(0)], [none], list[bytes]()
    for members, first, long, wall, step, json_at in groups:
        ends = (first + long).tolist()
        payloads = [block[start:end] for start, end in zip(first.tolist(), ends, strict=True)]
        stored = unmask(_rows(block, first + long, 4).view(np.uint32).ravel())
        good = np.fromiter(map(crc_of, payloads), np.uint32, len(payloads)) == stored
        numbers.append(members[good])
        walls.append(wall[good])
        steps.append(step[good])
        texts += [payload[json_at:] for payload, is_good in zip(payloads, good.tolist(), strict=True) if is_good]
    whole = np.concatenate(numbers)
    order = np.argsort(whole, kind="stable")
    if len(groups) > 1:
        texts = [texts[at] for at in order.tolist()]
    return Beats(whole[order], np.concatenate(walls)[order], np.concatenate(steps)[order], texts)


def _rows(block: bytes, offsets: Int64Array, width: int) -> NDArray[np.uint8]:
    items: NDArray[np.void] = np.ndarray((len(block) - width + 1,), f"V{width}", block, 0, (1,))
    return items[offsets].view(np.uint8).reshape(-1, width)
