"""`RunLogger`: what a module logs, in the run's events file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch.loggers import Logger

from supervisor_core.torch.writer import summary_writer
from supervisor_core.training.run import Run


class RunLogger(Logger):
    """A logger of Lightning's that writes the logged numbers as scalars of the run.

    Args:
        run: returns the session under way; None writes nothing.
        save_dir: the trainer's directory, for its other parts that ask its loggers.
    """

    def __init__(self, run: Callable[[], Run | None], save_dir: str) -> None:
        super().__init__()
        self._run = run
        self._save_dir = save_dir
        self._experiment: Any = None

    @property
    def experiment(self) -> Any:
        """A ``torch.utils.tensorboard.SummaryWriter`` that writes into the run's one events file, for modules that call
        ``self.logger.experiment.add_scalar(...)``. None outside ``fit``."""
        run = self._run()
        if self._experiment is None and run is not None:
            self._experiment = summary_writer(run)
        return self._experiment if run is not None else None

    @property
    def name(self) -> str:
        """A logger of Lightning's has a name."""
        return "supervisor"

    @property
    def version(self) -> str:
        """And a version."""
        return ""

    @property
    def save_dir(self) -> str:
        """See the class."""
        return self._save_dir

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write numbers, at Lightning's number of the step."""
        run = self._run()
        if run is not None:
            run.log(metrics, step=step)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """They are in the checkpoint."""
