"""`StateNotes`: digests of the trained state after some steps, for the comparison after a kill.

They are evidence where a program logs nothing. Noted after 1, 2, 4, 8 ... steps since the last save: a resume from it
passes the same steps. A digest covers some values of some floating-point arrays of each object, and of those of the
model that an adapter names, where they are in host memory: no device is waited for. Random states are left out: any
thread may draw from them, to no effect on the training.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

from supervisor_core.base.clock import Clock
from supervisor_core.events.file_writer import FileWriter
from supervisor_core.events.telemetry import DigestRecord, summary_bytes
from supervisor_core.training.objects import Part, access
from supervisor_core.training.save_point import Due
from supervisor_core.training.state import DATA, TrainingState

_LOG = logging.getLogger("supervisor_core")

FREE_SECS, SHARE = 0.05, 0.0005
"""How long all digests of a session may take: seconds, and a share of its time."""
MAX_ARRAYS, MAX_VALUES, MAX_LEAVES = 64, 16, 100_000
"""Of one object: arrays looked at, values of each, and parts of its state that are looked through."""


class StateNotes:
    """The digests of one session. Called by the training's thread, between two steps.

    Args:
        due: is kept up to date; looked at after each step.
        clock: measures what it costs.
    """

    def __init__(self, state: TrainingState, due: Due, clock: Clock) -> None:
        self._state, self._due, self._clock = state, due, clock
        self._writer: FileWriter | None = None
        self._session = ""
        self.is_off = False
        """Set where the due checkpoint is none of this process's alone."""
        self._since, self._began, self._spent = 0, 0.0, 0.0

    def begin(self, writer: FileWriter | None, session: str, step: int) -> None:
        """Begin, at the step of the restored checkpoint."""
        if not self.is_off:
            self._writer, self._session, self._began = writer, session, self._clock.monotonic()
            self.saved(step)

    def saved(self, step: int) -> None:
        """Say that this step is saved."""
        if self._writer is not None:
            self._since = step
            self._due.plan_note(step + 1)

    def note(self, step: int) -> bool:
        """Note the state after a step, if that is due; return whether a save may be due as well."""
        writer, due = self._writer, self._due
        if writer is None or step < due.note_step:
            return True
        due.plan_note(self._since + 2 * (step - self._since))
        began = self._clock.monotonic()
        if self._spent <= FREE_SECS + SHARE * (began - self._began):
            try:
                found = digests(self._state)
            except Exception:  # what cannot be saved, a save will say
                _LOG.debug("The state of step %d is not noted.", step, exc_info=True)
                self._writer, found = None, {}
                due.plan_note(math.inf)
            if found:
                writer.add_summary(summary_bytes(DigestRecord(session=self._session, step=step, states=found)), step)
            self._spent += self._clock.monotonic() - began
        return due.is_save(step, began)


def digests(state: TrainingState) -> dict[str, str]:
    """Return a digest by the name of each object with floating-point arrays: 12 hex digits."""
    trees: dict[str, Any] = {
        name: access(name, target).get()
        for name, target in state.objects.items()
        if name != DATA and not isinstance(target, Part)
    }
    found = {}
    for name, tree in (*trees.items(), *state.watched().items()):
        arrays = list(_arrays(tree))
        chosen = arrays[:: max(1, -(-len(arrays) // MAX_ARRAYS))]
        if values := [taken for taken in map(_values, chosen) if taken is not None]:
            found[name] = hashlib.sha256(repr(values).encode()).hexdigest()[:12]
    return found


def _arrays(tree: Any) -> Iterator[Any]:
    left, seen = [tree], 0
    while left and seen < MAX_LEAVES:
        value = left.pop()
        seen += 1
        if isinstance(value, Mapping):
            left.extend(value.values())
        elif isinstance(value, (list, tuple)):
            left.extend(value)
        elif hasattr(value, "tolist") and "float" in str(getattr(value, "dtype", "")):
            yield value


def _values(array: Any) -> Any:
    """Return some values of an array; None for one that has none, or is not in host memory: no device is waited for."""
    if hasattr(array, "addressable_data"):  # JAX
        import numpy as np

        if any(device.platform != "cpu" for device in array.devices()) or not array.is_fully_addressable:
            return None
        array = np.asarray(array)
    if not getattr(array, "is_cpu", True) or type(array).__name__ == "DTensor" or 0 in array.shape:
        return None
    while len(array.shape) > 1:
        array = array[array.shape[0] // 2]
    return array[:MAX_VALUES].tolist() if array.shape else array.tolist()
