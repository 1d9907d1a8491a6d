"""`Additions`: what a supervisor can do that the original could not."""

from __future__ import annotations

from contextlib import AbstractContextManager

from supervisor_core.run.status import RunStatus
from supervisor_core.tf1.lifecycle import Lifecycle


class Additions:
    """Seeing a run, and steering it, beyond the original's API."""

    @property
    def _lifecycle(self) -> Lifecycle:
        """The facade's sessions; each facade says which."""
        raise NotImplementedError

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus finds this process's metrics; None where none are served."""
        return self._lifecycle.run.metrics_url

    def run_status(self) -> RunStatus:
        """Return the session at this moment: what ``supervisor_core.metrics.RunCollector`` shows of it.

        Example, for a program that serves prometheus_client's default registry already:
            prometheus_client.REGISTRY.register(RunCollector(lambda: [sv.run_status()]))
        """
        return self._lifecycle.run.status()

    def evaluating(self) -> AbstractContextManager[None]:
        """Say that what happens in the ``with`` block is evaluation: it has a stall budget of its own."""
        return self._lifecycle.run.phase("evaluating")

    def save_checkpoint(self) -> str | None:
        """Save a checkpoint now, beside the service's own; return its path, None where nothing is saved.

        Raises:
            SaveFailedError: if there is no session.
            OSError, tf.errors.OpError: what kept it from being saved.
        """
        checkpoints = self._lifecycle.checkpoints
        return None if checkpoints is None else checkpoints.save("manual")
