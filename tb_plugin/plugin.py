"""`SupervisorPlugin`: the tab, put together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tensorboard.plugins import base_plugin

from tb_plugin.index import Index, Watch
from tb_plugin.known import Known
from tb_plugin.loader import MEMORY_MB, REFRESH_SECS
from tb_plugin.logdirs import logdirs_of
from tb_plugin.metrics_page import MetricsPage
from tb_plugin.routes.table import applications
from tb_plugin.scalar_store import ScalarStore, Source
from tb_plugin.static_files import StaticFiles
from tb_plugin.tab import Tab

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class SupervisorPlugin(Tab):
    """Reads the events files below TensorBoard's logdirs by itself, in the background, and answers from memory.

    Args:
        context: what TensorBoard tells its plugins.

    Raises:
        ValueError: if TensorBoard was given no directory of its own, or a flag has no sense.
    """

    def __init__(self, context: base_plugin.TBContext) -> None:
        flags = context.flags
        logdirs = logdirs_of(context.logdir or _flag(flags, "logdir", ""), _flag(flags, "logdir_spec", ""))
        if not logdirs:
            raise ValueError(
                "TensorBoard was given neither --logdir nor --logdir_spec, and this tab reads events files by itself."
            )
        refresh_secs = float(_flag(flags, "supervisor_refresh_secs", REFRESH_SECS))
        max_bytes = int(_flag(flags, "supervisor_memory_mb", MEMORY_MB)) << 20
        if not refresh_secs > 0:  # given in Python, where nothing has read it
            raise ValueError(f"supervisor_refresh_secs is {refresh_secs}; expected seconds above 0.")
        self._files = StaticFiles()
        self._index = Index(logdirs, refresh_secs, partial(_watch, include=_flag(flags, "supervisor_runs", "")))
        scalars = ScalarStore(_source, max_bytes, fresh_secs=min(1.0, refresh_secs))
        self._known = Known(self._index, scalars, MetricsPage())
        self._index.start()

    def is_active(self) -> bool:
        """Return whether there are any runs, of whatever writer, as far as is known; reads nothing."""
        view = self._index.view()
        return bool(view.runs) or (view.reading is not None and view.reading[1] > 0)

    def get_plugin_apps(self) -> dict[str, WSGIApplication]:
        """Return the routes; see http_api.md."""
        return applications(self._known, self._files)

    def close(self) -> None:
        """End the threads; TensorBoard never does, they are daemons and end with it."""
        self._index.close()
        self._known.scalar_store.close()


def _flag(flags: Any, name: str, default: Any) -> Any:
    """Return a flag, or the default where TensorBoard runs without flags, or without ours."""
    value = getattr(flags, name, None)
    return default if value is None else value


def _watch(logdir: str, include: str) -> Watch:
    from supervisor_core.watch.logdir_watch import LogdirWatch

    return LogdirWatch(logdir, include or None)


def _source(directory: str) -> Source:
    from supervisor_core.events.run_index import RunIndex

    return RunIndex(directory, directory)
