"""`SnapshotService`: the checkpoint service of hooks, which may be asked for a checkpoint of just this step.

The thread that trains waits for as long as the snapshot takes, not for the disk. So a checkpoint that is due every 100
steps is of step 100, 200, 300, and costs no more than one that is due every ten minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from supervisor_core.run.status import ThreadStatus
from supervisor_core.runtime.coordinator import Coordinator
from supervisor_core.runtime.policy import Policy
from supervisor_core.runtime.service import OnFailure, ServiceThread

ON_DEMAND_SECS = threading.TIMEOUT_MAX / 4
"""Seconds between two ticks of a service that works when it is asked to: more than any process lives."""
LOOK_AGAIN_SECS = 0.5
"""How often somebody who waits for a snapshot looks whether the service is still there."""

Save = Callable[[Callable[[], None]], str | None]
"""Saves a checkpoint, calling what it is given as soon as training may go on; returns its path, or None."""


@dataclass
class _Request:
    taken: threading.Event = field(default_factory=threading.Event)
    written: threading.Event = field(default_factory=threading.Event)
    path: str | None = None


class SnapshotService(ServiceThread):
    """Saves checkpoints on a timer, or when asked.

    Args:
        coord: the coordinator.
        interval_secs: seconds between two checkpoints; None: only when asked.
        save: saves one.
        name: the thread's name.
        policy: what happens to errors.
        on_failure: told of every failure.
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
        """Start, if it does not run yet."""
        if self.ident is None:
            self.start()

    def save_now(self, *, until_written: bool) -> str | None:
        """Have a checkpoint of this moment saved; return its path once it is written, None if it was not.

        Called by the thread that trains, between two steps. Starts the service if it does not run yet.

        Args:
            until_written: wait until it is durable, or has failed. Else only until training may go on, and what is
                returned is None.
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
        """Save, if it is time, somebody has asked, or the last save failed."""
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
        """Return the service's health; its interval is None where it works when asked."""
        status = super().status()
        return status if self._on_timer else replace(status, interval_secs=None)
