"""`LossWatch`: the losses that NaN hooks look at, for the checkpoints to look at too.

The checkpoint saver comes before the user's hooks, a timer may fire between a step and its hooks, and a hook that only
stops the loop lets the last step be saved: each of them would save a model that is NaN, as the newest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from supervisor_core.runtime.gate import Gate


class LossWatch:
    """Remembers the newest value of each loss that a ``NanTensorHook`` watches.

    Args:
        hooks: the session's hooks.
        gate: keeps snapshots out.
    """

    def __init__(self, hooks: Iterable[Any], gate: Gate) -> None:
        self.keys = frozenset(id(hook) for hook in hooks if isinstance(hook, tf.compat.v1.train.NanTensorHook))
        """The ids of the hooks whose results are losses."""
        self._gate = gate
        self._newest: dict[int, Any] = {}

    @contextmanager
    def between_snapshots(self) -> Iterator[None]:
        """Keep snapshots out for the length of a block."""
        self._gate.enter()
        try:
            yield
        finally:
            self._gate.leave()

    def saw(self, results: Mapping[int, Any]) -> None:
        """Record a run's results, by the hooks' ids."""
        for key in self.keys:
            if key in results:
                self._newest[key] = results[key]

    def forget(self) -> None:
        """Record that the model is another one: restored, or initialised."""
        self._newest.clear()

    def newest(self) -> Any:
        """Return the newest losses as one array; None where nothing is watched or nothing has run yet."""
        if not self._newest:
            return None
        return np.concatenate([np.asarray(value, np.float64).reshape(-1) for value in self._newest.values()])
