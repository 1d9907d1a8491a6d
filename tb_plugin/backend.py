"""`Backend`: all that the tab needs to answer. It is loaded, and begins to read, a moment after TensorBoard's start."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from werkzeug.wrappers import Request

from supervisor_core.events.run_index import RunIndex
from supervisor_core.watch.logdir_watch import LogdirWatch
from tb_plugin.answers import Answer
from tb_plugin.index import Index
from tb_plugin.known import Known
from tb_plugin.logdirs import Logdir
from tb_plugin.metrics_page import MetricsPage
from tb_plugin.routes.table import answer
from tb_plugin.scalar_store import ScalarStore


class Backend:
    """The index, the scalars and the routes. Reads from the time it is made until `close`, in daemon threads.

    Args:
        logdirs: what to read.
        refresh_secs: how long to wait between two looks.
        include: a regular expression that a run's name must match somewhere; empty for any.
        max_bytes: how much to hold scalars in.
    """

    def __init__(self, logdirs: Sequence[Logdir], *, refresh_secs: float, include: str, max_bytes: int) -> None:
        self._index = Index(logdirs, refresh_secs, partial(LogdirWatch, include=include or None))
        scalar_store = ScalarStore(_scalars_of, max_bytes, min(1.0, refresh_secs))
        self._known = Known(self._index, scalar_store, MetricsPage())
        self._index.start()

    def has_runs(self) -> bool:
        """Return whether there are any runs, of whatever writer, as far as is known; reads nothing."""
        view = self._index.view()
        return bool(view.runs) or (view.reading is not None and view.reading[1] > 0)

    def answer(self, name: str, request: Request) -> Answer:
        """Answer a request for a route; see `tb_plugin.routes.table.answer`."""
        return answer(self._known, name, request)

    def close(self) -> None:
        """End the threads."""
        self._index.close()
        self._known.scalar_store.close()


def _scalars_of(directory: str) -> RunIndex:
    return RunIndex(directory, directory, scalars_only=True)
