"""`SnapshotHookSaver`: saves a checkpoint hook's checkpoints in the background, each of exactly the step that is due.

The training thread waits for the snapshot, not for the disk: a checkpoint every 100 steps is of step 100, 200, 300, and
a save blocks no longer than one on a timer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.run.status import ThreadStatus
from supervisor_core.runtime.coordinator import Coordinator
from supervisor_core.runtime.service import OnFailure, Policy, ServiceThread
from supervisor_core.tf1.checkpoint_manager import CheckpointManager
from supervisor_core.tf1.lifecycle import Lifecycle

SMALL_BYTES = 1 << 20
"""A checkpoint of at most this size is durable when the call that caused it returns: writing it takes no longer than
the original's save, and programs, tests above all, expect the file."""


class SnapshotHookSaver:
    """Saves one hook's checkpoints through the session's snapshot service.

    Args:
        lifecycle: the session's; the time that training waits is counted in its recorder.
        checkpoints: takes and writes the checkpoints.
        service: the thread that writes, not yet started.
        on_timer: whether the service saves on its own timer.
        clock: replaced in tests.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        checkpoints: CheckpointManager,
        service: SnapshotService,
        on_timer: bool,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.on_timer = on_timer
        """Whether the service saves on its own timer."""
        self._lifecycle = lifecycle
        self._checkpoints = checkpoints
        self._service = service
        self._clock = clock

    @property
    def at_end(self) -> bool:
        """Whether to save when the session ends."""
        return self._lifecycle.options.save_on_stop

    def begin(self, session: Any) -> None:
        """Do nothing: the runtime has recorded the graph."""

    def save(self, session: Any, step: int, *, is_last: bool, until_written: bool) -> bool:
        """Save the present state unless it is saved already; return whether it is known to be durable.

        Raises:
            SaveFailedError: if the last checkpoint could not be saved.
        """
        checkpoints = self._checkpoints
        if is_last:
            self.finish()
            return checkpoints.is_saved
        if checkpoints.is_saved:
            self._service.ensure_started()
            return True
        wait = until_written or not checkpoints.consistent or checkpoints.size_bytes <= SMALL_BYTES
        progress, started = self._lifecycle.recorder.progress, self._clock.monotonic()
        try:
            return self._service.save_now(until_written=wait) is not None
        finally:
            if progress.phase == "training":
                progress.blocked(self._clock.monotonic() - started)

    def finish(self) -> None:
        """Save what changed since the last save without a new step.

        Raises:
            SaveFailedError: if it could not be saved.
        """
        self._lifecycle.stopping.save(self._checkpoints)


ON_DEMAND_SECS = threading.TIMEOUT_MAX / 4
"""Interval of a service that saves on request only: longer than any process lives."""
LOOK_AGAIN_SECS = 0.5
"""How often a thread that waits for a snapshot checks that the service is alive, in seconds."""

Save = Callable[[Callable[[], None]], str | None]
"""Saves a checkpoint and calls its argument as soon as training may continue; returns its path, or None."""


@dataclass
class _Request:
    taken: threading.Event = field(default_factory=threading.Event)
    written: threading.Event = field(default_factory=threading.Event)
    path: str | None = None


class SnapshotService(ServiceThread):
    """Saves checkpoints on a timer or on request.

    Args:
        coord: the coordinator.
        interval_secs: seconds between two checkpoints; None: on request only.
        save: saves one checkpoint.
        name: the thread's name.
        policy: how errors are handled.
        on_failure: called after every failure.
    """

    def __init__(
        self,
        coord: Coordinator,
        interval_secs: float | None,
        *,
        save: Save,
        name: str,
        policy: Policy,
        on_failure: OnFailure,
    ) -> None:
        super().__init__(coord, interval_secs or ON_DEMAND_SECS, name=name, policy=policy, on_failure=on_failure)
        self._on_timer = bool(interval_secs)
        self._save = save
        self._asked: _Request | None = None
        self._to_retry = False

    def ensure_started(self) -> None:
        """Start the thread unless it was started."""
        if self.ident is None:
            self.start()

    def save_now(self, *, until_written: bool) -> str | None:
        """Save the present state; return its path once it is written, None if it was not.

        Called by the training thread, between two steps. Starts the service if needed.

        Args:
            until_written: wait until it is durable or has failed. Otherwise only until training may continue; returns
                None.
        """
        request = _Request()
        self._asked = request
        if self.ident is None:
            self.start()
        else:
            self.wake()
        moment = request.written if until_written else request.taken
        while not moment.wait(LOOK_AGAIN_SECS) and self.is_alive():
            continue
        return request.path

    def run_loop(self) -> None:
        """Save if it is time, if requested, or if the last save failed."""
        request, self._asked = self._asked, None
        if request is None and not self._on_timer and not self._to_retry:
            return
        request = request or _Request()
        self._to_retry = True
        try:
            request.path = self._save(request.taken.set)
            self._to_retry = False
        finally:
            request.taken.set()
            request.written.set()

    def status(self) -> ThreadStatus:
        """Return the service's health; its interval is None if it saves on request only."""
        status = super().status()
        return status if self._on_timer else replace(status, interval_secs=None)
