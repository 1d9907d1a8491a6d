"""`summary_writer`: PyTorch's own `SummaryWriter`, writing through the run's one events file."""

from __future__ import annotations

from typing import Any

from supervisor_core.training.run import Run


def summary_writer(run: Run) -> Any:
    """Return a ``torch.utils.tensorboard.SummaryWriter`` for a run: existing ``add_scalar`` lines go to its one file.

    Where no ``global_step`` is given, it is the run's step. For a worker, and before the run has begun, everything is
    dropped.

    Raises:
        ImportError: if TensorBoard is not installed.
    """
    from torch.utils.tensorboard import SummaryWriter

    class RunSummaryWriter(SummaryWriter):
        """Writes through the run's writer; opens and closes no file."""

        def _get_file_writer(self) -> Any:
            self.file_writer = _FileWriter(run)
            self.all_writers = {run.logdir: self.file_writer}
            return self.file_writer

    return RunSummaryWriter(log_dir=run.logdir)


class _FileWriter:
    """What `SummaryWriter` needs of its file writer."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def get_logdir(self) -> str:
        return self._run.logdir

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        if self._run.writer is not None:
            self._run.writer.add_summary(summary, self._run.global_step if global_step is None else global_step)

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        if self._run.writer is not None:
            if step is not None:
                event.step = int(step)
            self._run.writer.add_event(event)

    def add_graph(self, graph_profile: Any, walltime: float | None = None) -> None:
        if self._run.writer is not None:
            self._run.writer.add_graph(None, graph_def=graph_profile[0])

    def add_onnx_graph(self, graph: Any, walltime: float | None = None) -> None:
        if self._run.writer is not None:
            self._run.writer.add_graph(None, graph_def=graph)

    def flush(self) -> None:
        if self._run.writer is not None:
            self._run.writer.flush()

    def close(self) -> None:
        """The run closes its file."""

    def reopen(self) -> None:
        """The run's file stays open."""
