"""`Surroundings`: what a session manager is told by the run that it makes sessions for, and what it tells the run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from supervisor_core.checkpoint.guard import Publisher
from supervisor_core.clock import SYSTEM_CLOCK, Clock
from supervisor_core.tf1.cluster.reach import unreachable_tasks
from supervisor_core.tf1.lifecycle import Lifecycle


class Surroundings:
    """Those of a session manager on its own: nobody interrupts it, nobody listens, and every model is strange to it."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._never = threading.Event()

    @property
    def session(self) -> str:
        """The id of the session that prepares a model, by which the model is known again."""
        return ""

    @property
    def starts_over(self) -> bool:
        """Whether to begin at step 0 where all checkpoints are damaged, rather than raise."""
        return False

    def publisher(self, directory: str) -> Publisher | None:
        """Return who saves in a directory, if that is the session which prepares a model."""
        return None

    def wait(self, secs: float) -> bool:
        """Wait so many seconds; tell whether to give up."""
        return self._never.wait(secs)

    def restoring(self) -> None:
        """Hear that a checkpoint is about to be read."""

    def waiting_for(self, what: str | None) -> None:
        """Hear what is waited for; None: for nothing any more."""

    def gave_up(self) -> None:
        """Hear that a stop was requested, and nothing is waited for any more."""

    def kept_back(self) -> str | None:
        """Return why a worker must not begin though the model may be ready; None if nothing speaks against it.

        Raises:
            RunFinishedError: if there is nothing to begin any more.
        """
        return None

    def owns(self, session: str) -> bool:
        """Tell whether a model that this session announced is the run's own, and good to go on with."""
        return False

    def missing(self, config: Any) -> str:
        """Return which processes of the cluster do not answer, for a person to read."""
        return unreachable_tasks(config)


class RunSurroundings(Surroundings):
    """Those of a session manager that works for a supervised run.

    Args:
        lifecycle: the run; a session of it must be under way.
        wait: waits for a stop, so many seconds at most; tells whether it was requested.
        clock: the time.
    """

    def __init__(self, lifecycle: Lifecycle, wait: Callable[[float], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(clock)
        self._lifecycle = lifecycle
        self._wait_for_stop = wait

    @property
    def session(self) -> str:
        """The run's session under way."""
        return self._lifecycle.run.session_id

    @property
    def starts_over(self) -> bool:
        """What the run's options say."""
        return self._lifecycle.options.unusable_checkpoints == "start_over"

    def publisher(self, directory: str) -> Publisher | None:
        """Return the run's, in its own directory."""
        run = self._lifecycle.run
        return run.publisher if run.saves_in(directory) else None

    def wait(self, secs: float) -> bool:
        """Wait so many seconds; tell whether a stop was requested."""
        return self._wait_for_stop(secs)

    def restoring(self) -> None:
        """Have the run say that it restores."""
        self._lifecycle.run.enter("restoring")

    def waiting_for(self, what: str | None) -> None:
        """Have the run say what it waits for."""
        self._lifecycle.run.waiting_for(what)

    def gave_up(self) -> None:
        """Have the session end as what asked for the stop would have it."""
        self._lifecycle.stop_reason.gave_up = True

    def kept_back(self) -> str | None:
        """Return whether the run has finished, as far as its lease tells."""
        return self._lifecycle.kept_back()

    def owns(self, session: str) -> bool:
        """Tell whether the model is this session's, or that of the one before it if that was cut off."""
        return self._lifecycle.run.goes_on_from(session)
