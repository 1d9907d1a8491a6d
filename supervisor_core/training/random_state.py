"""The random states of a process: python's, numpy's, and those that an adapter adds for its framework."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class RandomSource(NamedTuple):
    """One source of random numbers."""

    name: str
    """``python``, ``numpy``, ``torch``, ``torch.cuda:0`` ..."""
    get: Callable[[], Any]
    """Returns its state, as a state tree."""
    set: Callable[[Any], object]
    """Sets it to such a state."""


def process_sources() -> tuple[RandomSource, ...]:
    """Return python's own source, and numpy's.

    Also where the program has not imported numpy: a session does, after it has restored the checkpoint.
    """
    import numpy as np

    return (
        RandomSource("python", random.getstate, lambda state: random.setstate(_python(state))),
        RandomSource("numpy", lambda: _listed(np.random.get_state()), lambda state: np.random.set_state(_numpy(state))),
    )


def capture(sources: tuple[RandomSource, ...]) -> dict[str, Any]:
    """Return the states by the sources' names."""
    return {source.name: source.get() for source in sources}


def restore(sources: tuple[RandomSource, ...], states: Mapping[str, Any]) -> list[str]:
    """Set the states, and return what could not be set: sentences."""
    by_name = {source.name: source for source in sources}
    reasons = [f"The random state of {name} is not in the checkpoint." for name in by_name if name not in states]
    for name, state in states.items():
        source = by_name.get(name)
        if source is None:
            reasons.append(f"The random state of {name} was saved, and this process has no {name}.")
            continue
        try:
            source.set(state)
        except Exception as error:
            reasons.append(f"The random state of {name} could not be set: {error}.")
    return reasons


def _listed(state: Any) -> Any:
    """Return numpy's state with a list for its array, which needs no file of its own."""
    name, keys, *rest = state
    return (name, keys.tolist(), *rest)


def _numpy(state: Any) -> Any:
    """Return a state that numpy may have: it reads at the position in it without a look, wherever that is."""
    name, keys, position, *rest = state
    if name != "MT19937" or type(position) is not int or not 0 <= position <= len(keys):
        raise ValueError("its position lies outside of it")
    return (name, keys, position, *rest)


def _python(state: Any) -> Any:
    version, numbers, gauss = state
    return version, tuple(numbers), gauss
