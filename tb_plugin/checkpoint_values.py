"""`CheckpointReader`: what the numbers of a run's checkpoints are, and what changed since the one before.

They are read when somebody asks for them, by one thread, one checkpoint at a time: a request waits for it for a moment,
and reads nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from supervisor_core.checkpoint.names import last_part
from supervisor_core.errors import CheckpointError
from supervisor_core.log import command_line
from supervisor_core.run.checkpoints import Checkpoint
from supervisor_core.run.presence import CheckpointPresence
from supervisor_core.run.run_json import plain
from supervisor_core.storage.local import local_path
from tb_plugin.http import unavailable

if TYPE_CHECKING:
    from supervisor_core.checkpoint.values import CheckpointValues, Difference

_LOG = logging.getLogger("supervisor_core")

MOST_WAITING = 8
"""Checkpoints that wait to be read."""
_MOST_KEPT = 200
"""Results; those asked for longest ago go first."""
_MOST_TENSORS = 50
"""Of a result: those with NaN or infinity, and those that changed most."""


class Asked(NamedTuple):
    """A checkpoint to look into."""

    directory: str
    """The run's."""
    path: str
    """As its writer knew it."""
    at: float | None
    """When it was saved."""
    before: str | None
    """The path of the one before it; None without one."""


def asked_of(directory: str, saves: Sequence[Checkpoint], path: str | None) -> Asked | None:
    """Return what to look into for the newest good save of a path; None where there is none.

    Args:
        directory: the run's.
        saves: the run's, oldest first.
        path: as its writer knew it; None for the newest good save.
    """
    found: Asked | None = None
    for save in reversed(saves):
        if save.path is None or not save.ok:
            continue
        if found is None:
            found = Asked(directory, save.path, save.at, None) if path in (None, save.path) else None
        elif save.path != found.path and save.is_there:
            return found._replace(before=save.path)
    return found


class _Reading:
    """A checkpoint that is read, or was."""

    def __init__(self) -> None:
        self.progress = 0, 0
        self.result: dict[str, Any] | None = None


class CheckpointReader:
    """Reads in one daemon thread of its own, which begins with the first question.

    Args:
        read: reads a checkpoint; called with it, and with what is to be called with (bytes done, bytes in all).
    """

    def __init__(self, read: Callable[[Asked, Callable[[int, int], None]], dict[str, Any]] | None = None) -> None:
        self._read = read or look_into
        self._changed = threading.Condition()
        self._readings: OrderedDict[Asked, _Reading] = OrderedDict()
        self._wanted: SimpleQueue[tuple[Asked, _Reading] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def look(self, asked: Asked, wait_secs: float) -> dict[str, Any]:
        """Return what is in a checkpoint; any thread may ask.

        Args:
            asked: the checkpoint.
            wait_secs: how long to wait for the thread.

        Raises:
            Refused: if it has not been read in that time; says how far it is.
        """
        with self._changed:
            reading = self._readings.get(asked)
            if reading is None:
                if sum(item.result is None for item in self._readings.values()) >= MOST_WAITING:
                    raise unavailable("starting", f"{MOST_WAITING} other checkpoints are to be read first.")
                reading = self._readings[asked] = _Reading()
                self._wanted.put((asked, reading))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name="supervisor-values", daemon=True)
                    self._thread.start()
            self._readings.move_to_end(asked)
            self._changed.wait_for(lambda: reading.result is not None, wait_secs)
            if reading.result is None:
                done, total = reading.progress
                share = f"{100 * done // total} %" if total else "waiting"
                raise unavailable("starting", f"{last_part(asked.path)} is being read: {share}.")
            if reading.result["problem"] is not None:  # may be gone the next time: a file system that is out of reach
                self._readings.pop(asked, None)
            return reading.result

    def close(self) -> None:
        """End the thread after what it is reading now; what waits is not read."""
        with self._changed:
            thread, self._thread = self._thread, None
        with contextlib.suppress(Empty):
            while True:
                self._wanted.get_nowait()
        if thread is not None:
            self._wanted.put(None)
            thread.join()

    def _serve(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            asked, reading = wanted

            def on_progress(done: int, total: int, reading: _Reading = reading) -> None:
                reading.progress = done, total

            try:
                result = self._read(asked, on_progress)
            except Exception as error:  # clients of object stores raise what they like
                _LOG.warning("The values of %s could not be read: %r", asked.path, error)
                result = answer_of(asked, problem=f"It could not be read: {error!r}")
            with self._changed:
                reading.result = result
                for key, item in list(self._readings.items())[:-_MOST_KEPT]:
                    if item.result is not None:
                        del self._readings[key]
                self._changed.notify_all()


def look_into(asked: Asked, on_progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Read a checkpoint, and the one before it; return what ``checkpoint_values`` answers."""
    from supervisor_core.checkpoint.values import difference_of, values_of  # 2 MiB, for who asks

    presence = CheckpointPresence()
    place = _place(presence, asked.directory, asked.path)
    if place is None:
        return answer_of(asked, problem="Its files are not in the run's directory.")
    before = None if asked.before is None else _place(presence, asked.directory, asked.before)
    command = None if before is None else command_line("tb-supervisor", "diff", before, place)
    problem = None
    if before is not None:
        try:
            found, values = difference_of(before, place, on_progress=on_progress, of_run=True)
            return answer_of(asked, values=values, change=found, command=command)
        except CheckpointError as error:
            problem = str(error)
    try:
        values = values_of(place, on_progress=on_progress, of_run=True)
    except CheckpointError as error:
        return answer_of(asked, problem=str(error), command=command)
    return answer_of(asked, values=values, change_problem=problem, command=command)


def _place(presence: CheckpointPresence, directory: str, path: str) -> str | None:
    """Return where a checkpoint is; None where a symbolic link in the run's directory leads there: to anybody's."""
    place = presence.place(directory, path)
    local = None if place is None else local_path(place)
    if local is not None:
        parent = os.path.dirname(local)
        is_inner = parent != (local_path(directory) or directory).rstrip("/")
        if os.path.islink(local) or (is_inner and os.path.islink(parent)):
            return None
    return place


def answer_of(
    asked: Asked,
    *,
    values: CheckpointValues | None = None,
    change: Difference | None = None,
    problem: str | None = None,
    change_problem: str | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Return what ``checkpoint_values`` answers."""
    odd = [] if values is None else [tensor for tensor in values.tensors if not tensor.is_finite]
    changed = [] if change is None else sorted(change.tensors, key=lambda item: -(item.relative or 0.0))
    answer: dict[str, Any] = plain(
        {
            "v": 1,
            "path": asked.path,
            "before": asked.before,
            "problem": problem,
            "values": None if values is None else {
                "summary": values.summary,
                "has_nan": values.has_nan,
                "norm": values.norm,
                "not_finite": [asdict(tensor) for tensor in odd[:_MOST_TENSORS]],
            },
            "change": None if change is None else {
                "summary": change.summary,
                "relative": change.relative,
                "counts": dict(change.counts),
                "tensors": [asdict(item) for item in changed[:_MOST_TENSORS]],
            },
            "change_problem": change_problem,
            "command": command,
        }
    )  # fmt: skip
    return answer
