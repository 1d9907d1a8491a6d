"""`Siblings`: the states of the other callbacks of a ``fit``: EarlyStopping, ReduceLROnPlateau, History, one's own.

A callback with ``get_state``/``set_state`` or ``state_dict``/``load_state_dict`` is saved by these. Of any other, those
attributes are saved that have changed since the first epoch began: what the program has configured stays the program's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import keras

from supervisor_core.errors import CheckpointError
from supervisor_core.training.objects import Access, access
from supervisor_core.training.state import probe
from supervisor_core.training.tree import NumpyArrays, check_tree

NOT_CAPTURED = "{} of the callback {} is not captured: give it get_state() and set_state()."

# Attributes that Keras sets, and configuration that it changes: monitor_op's first use turns the sign of min_delta.
_KERAS_SETS = {"model", "_model", "params", "_params", "min_delta", "monitor_op"}
# They show progress, or swap what is swapped back before a checkpoint is saved.
_WITHOUT_STATE = (keras.callbacks.ProgbarLogger, keras.callbacks.SwapEMAWeights)
_KINDS = (NumpyArrays(),)


class Siblings:
    """The states of callbacks.

    Args:
        callbacks: the callbacks of a ``fit``, without ours.
    """

    def __init__(self, callbacks: list[Any]) -> None:
        self._callbacks = [item for item in callbacks if not isinstance(item, _WITHOUT_STATE)]
        self._before: list[dict[str, Any]] | None = None
        self._loaded: list[Any] | None = None
        self.held: list[Any] | None = None
        """What is saved in place of the present states, while an evaluation runs; None otherwise."""

    @property
    def limits(self) -> tuple[str, ...]:
        """What is not captured: sentences."""
        found = []
        for item in self._callbacks:
            own = type(item).__module__.partition(".")[0] != "keras" and _access(item) is None
            found += [
                NOT_CAPTURED.format(name, type(item).__name__)
                for name, value in (vars(item).items() if own else ())
                if name not in _KERAS_SETS and not callable(value) and not _can_be_saved(value)
            ]
        return tuple(found)

    @property
    def names(self) -> str:
        """The callbacks' names."""
        return ", ".join(type(item).__name__ for item in self._callbacks) or "none"

    def begin(self) -> None:
        """The first epoch begins: what is set now is configuration."""
        if self._before is None:
            self._before = [{name: _base(value) for name, value in vars(item).items()} for item in self._callbacks]

    def probe(self) -> None:
        """See after the first batch whether the states can be saved.

        Raises:
            CheckpointError: if a callback does not return its state, or one with a value that cannot be saved.
        """
        for item in self._callbacks:
            if (pair := _access(item)) is not None:
                probe(pair.get, _KINDS, f"The state of the callback {type(item).__name__}")

    def state_dict(self) -> dict[str, Any]:
        """Return the states, by the callbacks' order."""
        return {"callbacks": self.states() if self.held is None else self.held}

    def states(self) -> list[Any]:
        """Return the states of this moment."""
        before = self._before or [{} for _ in self._callbacks]
        return [
            [type(item).__name__, self._state(item, base)] for item, base in zip(self._callbacks, before, strict=True)
        ]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep the states for `apply`: Keras sets callbacks back when ``fit`` begins."""
        left = [(name, saved) for name, saved in state["callbacks"]]
        self._loaded = []
        for item in self._callbacks:
            found = next((pair for pair in left if pair[0] == type(item).__name__), None)
            if found is not None:
                left.remove(found)
            self._loaded.append(None if found is None else found[1])

    def apply(self, *, last: bool = True) -> None:
        """Set the states that were loaded.

        Args:
            last: do not keep them for another call.
        """
        if self._loaded is None:
            return
        for number, (item, state) in enumerate(zip(self._callbacks, self._loaded, strict=True)):
            if state is None:
                continue
            if (pair := _access(item)) is not None:
                pair.set(state)
                continue
            for name, value in (self._before[number] if self._before else {}).items():
                if name not in _KERAS_SETS and _can_be_saved(value):
                    setattr(item, name, _base(value))
            for name, value in state.items():
                setattr(item, name, copy.deepcopy(value))
        if last:
            self._loaded = None

    def _state(self, item: Any, before: dict[str, Any]) -> Any:
        if (pair := _access(item)) is not None:
            return pair.get()
        return {
            name: value
            for name, value in vars(item).items()
            if name not in _KERAS_SETS
            and not (name in before and _is_same(before[name], value))
            and _can_be_saved(value)
        }


def _access(item: Any) -> Access | None:
    try:
        return access(type(item).__name__, item)
    except TypeError:
        return None


def _can_be_saved(value: Any) -> bool:
    try:
        check_tree(value, _KINDS)
    except CheckpointError:
        return False
    return True


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other) and type(one) is type(other)
    except (ValueError, TypeError):  # arrays
        return False


def _base(value: Any) -> Any:
    """Return a value as it is now; a container's later changes do not reach it."""
    return copy.copy(value) if isinstance(value, (list, dict, set)) else value
