"""`SupervisorPlugin`: the tab, as TensorBoard loads it: quickly. Everything heavy is in `tb_plugin.backend`."""

from __future__ import annotations

import gzip
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request

from tb_plugin.http import Answer, endpoint, unavailable
from tb_plugin.loader import MEMORY_MB, REFRESH_SECS
from tb_plugin.logdirs import logdirs_of
from tb_plugin.static_files import static_files
from tb_plugin.tab import PLUGIN_NAME, Tab

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

    from tb_plugin.backend import Backend

_LOG = logging.getLogger("supervisor_core")

START_DELAY_SECS = 0.25
"""The backend is loaded this long after TensorBoard has built its plugins; at the first request if one is earlier."""

_ADDRESS = f"/data/plugin/{PLUGIN_NAME}/"


class SupervisorPlugin(Tab):
    """Reads the events files below TensorBoard's logdirs by itself, in the background, and answers from memory.

    Args:
        context: what TensorBoard gives its plugins.

    Raises:
        ValueError: if TensorBoard was given no directory of its own, or a flag has no sense.
    """

    def __init__(self, context: base_plugin.TBContext) -> None:
        flags = context.flags
        self._logdirs = logdirs_of(context.logdir or _flag(flags, "logdir", ""), _flag(flags, "logdir_spec", ""))
        if not self._logdirs:
            raise ValueError(
                "TensorBoard was given neither --logdir nor --logdir_spec, and this tab reads events files by itself."
            )
        self._refresh_secs = float(_flag(flags, "supervisor_refresh_secs", REFRESH_SECS))
        if not self._refresh_secs > 0:  # given in Python, where nothing has read it
            raise ValueError(f"supervisor_refresh_secs is {self._refresh_secs}; expected seconds above 0.")
        self._include = str(_flag(flags, "supervisor_runs", ""))
        self._max_bytes = int(_flag(flags, "supervisor_memory_mb", MEMORY_MB)) << 20
        self._cache = str(_flag(flags, "supervisor_cache", ""))
        self._files = static_files()
        self._asked = threading.Event()
        self._starting = threading.Lock()
        self._backend: Backend | None = None
        self._problem: str | None = None
        self._starter = threading.Thread(target=self._begin, name="supervisor-start", daemon=True)

    def is_active(self) -> bool:
        """Return whether there is anything to show: runs, or a reason why there can be none. Waits for nothing."""
        self._asked.set()
        return self._problem is not None or (self._backend is not None and self._backend.has_runs())

    def get_plugin_apps(self) -> dict[str, WSGIApplication]:
        """Return what TensorBoard serves below the plugin's address; see http_api.md. Asked when all else is there."""
        if self._starter.ident is None:
            self._starter.start()
        return applications(self._files, self._answer)

    def close(self) -> None:
        """End the threads; TensorBoard never does, they are daemons and end with it."""
        self._asked.set()
        with self._starting:
            backend, self._backend, self._problem = self._backend, None, "it was closed"
        if backend is not None:
            backend.close()

    def _begin(self) -> None:
        self._asked.wait(START_DELAY_SECS)
        self._start()

    def _answer(self, name: str, request: Request) -> Answer:
        backend = self._start()
        if backend is None:
            raise unavailable("failed", f"The Supervisor tab could not start: {self._problem}")
        return backend.answer(name, request)

    def _start(self) -> Backend | None:
        """Return the backend, which the first call starts; None, with `_problem`, if that failed or it was closed."""
        with self._starting:
            if self._backend is None and self._problem is None:
                try:
                    from supervisor_core.base.options import CACHE_VARIABLE
                    from tb_plugin.backend import start_backend

                    self._backend = start_backend(
                        self._logdirs,
                        refresh_secs=self._refresh_secs,
                        include=self._include,
                        max_bytes=self._max_bytes,
                        cache=self._cache or os.environ.get(CACHE_VARIABLE) or None,
                    )
                except Exception as error:  # a broken installation: every route says so
                    _LOG.exception("The Supervisor tab could not start; TensorBoard continues")
                    self._problem = f"{type(error).__name__}: {error}"
            return self._backend


def applications(files: Mapping[str, Answer], answer: Callable[[str, Request], Answer]) -> dict[str, WSGIApplication]:
    """Return one application for each file, and one for everything else below the plugin's address.

    Args:
        files: the frontend, by name; each is compressed when it is first asked for.
        answer: answers a request for a route, by its name.
    """

    def data(request: Request) -> Answer:
        return answer(request.path.removeprefix(_ADDRESS).removesuffix("/"), request)

    @cache
    def packed(name: str) -> Answer:
        return replace(files[name], body=gzip.compress(files[name].body, mtime=0), packed=True)

    def file(name: str, request: Request) -> Answer:
        return packed(name)

    apps = {f"/{name}": endpoint(partial(file, name)) for name in files}
    return {**apps, "/*": endpoint(data)}


def _flag(flags: Any, name: str, default: Any) -> Any:
    """Return a flag, or the default where TensorBoard runs without flags, or without ours."""
    value = getattr(flags, name, None)
    return default if value is None else value
