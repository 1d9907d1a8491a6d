"""`Known`: where the routes find what they answer from."""

from __future__ import annotations

from dataclasses import dataclass

from tb_plugin.answers import Refused, unavailable
from tb_plugin.arguments import Arguments
from tb_plugin.index import Index
from tb_plugin.metrics_page import MetricsPage
from tb_plugin.scalar_store import NotRead, RunScalars, ScalarStore
from tb_plugin.view import RunView, View

FIRST_VIEW_SECS = 0.5
"""How long a request waits for the first view: small logdirs are read by then, and the client need not ask twice."""
SCALARS_SECS = 5.0
"""How long a request waits for a run's scalars to be read."""


@dataclass(frozen=True)
class Known:
    """The index, the scalars, and the metrics."""

    index: Index
    scalar_store: ScalarStore
    metrics_page: MetricsPage
    first_view_secs: float = FIRST_VIEW_SECS
    scalars_secs: float = SCALARS_SECS

    def view(self) -> View:
        """Return the present view."""
        return self.index.view(self.first_view_secs)

    def run(self, arguments: Arguments) -> tuple[View, RunView]:
        """Return the run that a request names, and the view that it is of."""
        name, view = arguments.text("run"), self.view()
        run = view.runs.get(name)
        if run is not None:
            return view, run
        if not view.is_whole:
            raise unavailable("starting", "The logdir is being read for the first time; ask again in a second.")
        shown = name if len(name) <= 80 else name[:80] + "..."
        raise Refused(404, f"There is no run {shown!r}; 'runs' lists those there are.")

    def scalars(self, run: RunView) -> RunScalars:
        """Return a run's scalars."""
        try:
            return self.scalar_store.run(run.directory, self.scalars_secs)
        except NotRead as error:
            if error.problem is not None:
                raise unavailable("failed", error.problem) from error
            raise unavailable("starting", f"The scalars of {run.name!r} are being read; ask again.") from error
