"""`Attributes`: plain values of objects that no checkpoint has, as a dropout's rate or a dataset's flag, compared with
what they were when the session began."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from supervisor_core.torch.workers import reachable
from supervisor_core.training.state import COMPARED

CHANGED = COMPARED + (
    "{} has changed since the session began, and no checkpoint has it: unless the program sets it again by the number "
    "of the epoch or step, keep it in a buffer, or in an object that is in state."
)
ABSENT: Any = object()
"""No value, or none that is plain."""
MOST_NAMES, MOST_VALUES = 8, 64
"""Of one sentence; and of a list or dict of plain values."""
_SCALARS = frozenset((int, float, bool, str, type(None)))


class Attributes:
    """See the module's docstring. A comparison takes less than a millisecond for 1,000 modules.

    Args:
        objects: by name; see `looked_into`.
    """

    def __init__(self, objects: Iterable[tuple[str, Any]]) -> None:
        self._held: dict[int, tuple[str, dict[str, Any], tuple[str, ...], tuple[Any, ...]]] = {}
        self._counts: set[str] = set()
        self._last: dict[str, Any] = {}
        for name, item in objects:
            held = getattr(item, "__dict__", None)
            if type(held) is dict and item not in self:
                keys = tuple(key for key, part in held.items() if is_public(key) and plain(part) is part)
                self._held[id(held)] = name, held, keys, tuple(map(held.get, keys))

    def __contains__(self, item: Any) -> bool:
        return id(getattr(item, "__dict__", None)) in self._held

    def value(self, name: str) -> Any:
        """Return the present value of an attribute that was there; `ABSENT` for none."""
        owner, _, key = name.rpartition(".")
        return next((plain(held.get(key)) for each, held, keys, _ in self._held.values() if each == owner), ABSENT)

    def step_ended(self) -> None:
        """One of the first steps has ended: whole numbers that change in each are counts for the log."""
        self._counts, last = set(), self._last
        self._last = now = self.changed()
        self._counts = {name for name, value in now.items() if type(value) is int and value != last.get(name)}

    def changed(self) -> dict[str, Any]:
        """Return what has changed, by name."""
        found = [item for item in self._held.values() if _differ(tuple(map(item[1].get, item[2])), item[3])]
        return {
            f"{name}.{key}": now
            for name, held, keys, before in found
            for key, was in zip(keys, before, strict=True)
            if f"{name}.{key}" not in self._counts
            if (now := plain(held.get(key))) is not ABSENT and now != was and "epoch" not in key
        }


def limits_of(changed: Iterable[str], sentence: str = CHANGED) -> tuple[str, ...]:
    """Return what is said of values that have changed: sentences."""
    names = sorted(set(changed))[:MOST_NAMES]
    return (sentence.format(", ".join(names)),) if names else ()


def _differ(now: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    try:
        return now != before
    except (RuntimeError, ValueError):  # an array stands where a number was
        return True


def looked_into(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects whose attributes are compared: the modules of a module, an optimizer, and what the dataset and
    the ``collate_fn`` of a loader reach."""
    if isinstance(value, torch.nn.Module):
        yield from ((f"{name}.{path}" if path else name, item) for path, item in value.named_modules())
    elif isinstance(value, torch.optim.Optimizer):
        yield name, value
    else:
        for part in ("dataset", "collate_fn"):
            if not hasattr(inner := getattr(value, part, None), "state_dict"):
                yield from ((f"{name}.{part}{path}", item) for path, item in reachable(inner))


def is_public(name: str) -> bool:
    """Return whether an attribute may be a setting: the modes of modules are saved with them."""
    return not name.startswith("_") and name != "training"


def plain(value: Any, depth: int = 2) -> Any:
    """Return a value of numbers, texts and flags, lists and dicts as tuples; `ABSENT` for any other."""
    if type(value) in _SCALARS:
        return value
    if type(value) not in (list, tuple, dict, set, deque) or len(value) > MOST_VALUES or not depth:
        return ABSENT
    items = [plain(item, depth - 1) for item in (value.items() if isinstance(value, dict) else value)]
    found = tuple(items)
    if any(item is ABSENT for item in items):
        return ABSENT
    return value if found == value else found
