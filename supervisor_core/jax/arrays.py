"""`JaxArrays`: the arrays of JAX in checkpoints, in Orbax's format.

They are in ``<checkpoint>/orbax``, under their names in the tree: Orbax's own ``PyTreeCheckpointer().restore`` reads
them as nested dicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from supervisor_core.errors import SaveFailedError
from supervisor_core.training.tree import array_with_nan


class Numbers(np.ndarray[Any, Any]):
    """An array of JAX that was read, in host memory."""


class JaxArrays:
    """``jax.Array``, on any devices of this process, with numbers of any type that JAX has.

    An array of JAX never changes, so a reference is a copy as long as no function takes its memory over
    (``donate_argnums``). Where none does, the saving thread copies it to host memory, and the training waits for
    nothing. Otherwise the training's thread copies it, which waits for the step.
    """

    name = "jax"
    file = "orbax"

    def __init__(self) -> None:
        self.by_reference = False
        """Whether arrays stay where they are until they are written: no function takes over the memory of its
        arguments."""

    def matches(self, value: Any) -> bool:
        """See `ArrayKind.matches`."""
        return isinstance(value, jax.Array)

    def check(self, value: Any) -> None:
        """See `ArrayKind.check`."""
        if not value.is_fully_addressable:
            raise TypeError("an array of which this process has only a part")

    def copy(self, value: Any) -> Any:
        """See `ArrayKind.copy`."""
        self.check(value)
        if self.by_reference:
            value.copy_to_host_async()
            return value
        return np.array(value)

    def save(self, arrays: Mapping[str, Any], path: str) -> str | None:
        """See `ArrayKind.save`.

        Raises:
            SaveFailedError: if a function has taken over the memory of one.
        """
        nested: dict[str, Any] = {}
        on_host = {name: self._on_host(array, name) for name, array in arrays.items()}
        for name, array in on_host.items():
            *folders, last = name.split("/")
            inner = nested
            for folder in folders:
                inner = inner.setdefault(folder, {})
            inner[last] = array
        ocp.PyTreeCheckpointer().save(path, nested)
        return array_with_nan(on_host)

    def load(self, path: str) -> Mapping[str, Any]:
        """See `ArrayKind.load`; returns `Numbers`."""
        return dict(_flat(ocp.PyTreeCheckpointer().restore(path)))

    def _on_host(self, array: Any, name: str) -> Any:
        if isinstance(array, np.ndarray):
            return array
        try:
            return np.array(array)
        except RuntimeError as error:
            if not array.is_deleted():
                raise
            self.by_reference = False
            raise SaveFailedError(
                f"The memory of {name} was taken over by a function that has it donated, before it was copied. From "
                "now on the state is copied before the next step."
            ) from error


def _flat(nested: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in nested.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{place}{name}/")
        else:
            yield f"{place}{name}", np.asarray(item).view(Numbers)
