"""`mutated`: JSON with another value somewhere, since flipped bytes are nearly always no JSON any more."""

from __future__ import annotations

import json
import random
from typing import Any

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 0.5, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1e15, 2.5e11, 1e308, -1e308),
    *(float("inf"), float("nan"), "", "x", "x" * 300, "\x1b[2J", "\n", "\ud800", "../x", "/x", "1", "1700000000"),
    *([], [[]], [{}], [None], {}, {"": {}}, {"name": 1}, [1, "a", None], 1_700_000_000.0, 1_699_999_990, 5),
)


def mutated(data: bytes, max_size: int, seed: int) -> bytes:
    """Return one line of the data with one value of its JSON altered; the data as they are where that has none."""
    chance = random.Random(seed)
    lines = data.split(b"\n")
    number = chance.randrange(len(lines))
    line = lines[number]
    start = line.find(b"{")
    if start < 0:
        return data
    try:
        value = json.loads(line[start:])
    except (ValueError, RecursionError):
        return data
    if chance.random() < 0.2:
        lines.insert(number, line)
    _alter(value, chance)
    lines[number] = line[:start] + json.dumps(value).encode()
    found = b"\n".join(lines)
    return found if len(found) <= max_size else data


def _alter(value: Any, chance: random.Random) -> None:
    places = list(_places(value))
    if not places:
        return
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        holder, key = chance.choice(places)
        what = chance.random()
        try:
            if what < 0.15:
                del holder[key]
            elif what < 0.3:
                other, at = chance.choice(places)
                holder[key] = json.loads(json.dumps(other[at]))
            elif what < 0.5 and type(holder[key]) in (int, float):
                holder[key] = chance.choice((-holder[key], holder[key] + chance.randint(-3, 3), holder[key] * 10))
            elif what < 0.6 and isinstance(holder[key], list):
                holder[key] *= chance.choice((0, 2, 3))
            else:
                holder[key] = chance.choice(_VALUES)
        except (KeyError, IndexError, OverflowError):  # gone with an earlier alteration
            continue


def _places(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
