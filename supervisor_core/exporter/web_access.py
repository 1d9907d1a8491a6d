"""`WebAccess`: a web configuration in force, read again when its file, a certificate or a key has changed."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from supervisor_core.errors import OptionsError
from supervisor_core.exporter.basic_auth import BasicAuth
from supervisor_core.exporter.tls import tls_context
from supervisor_core.exporter.web_config import WebConfig, read_web_config

_LOG = logging.getLogger("supervisor_core")


@dataclass(frozen=True)
class _Rules:
    auth: BasicAuth
    headers: Mapping[str, str]
    context: ssl.SSLContext | None


class WebAccess:
    """Who may ask, over what, and with which headers they are answered; from many threads at once.

    Each question costs a look at the files' dates. A change that cannot be used is logged, once, and what was in force
    before stays so. Whether TLS is spoken at all is decided at the start.

    Args:
        path: the file; None for plain HTTP, open to everybody.

    Raises:
        OptionsError: in one line, what about the file cannot be used.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._watched: tuple[str, ...] = () if path is None else (path,)
        self._stamps: tuple[object, ...] = ()
        self._rules = _Rules(BasicAuth({}), {}, None)
        if path is not None:
            try:
                self._rules = self._read(path)
            except OSError as error:
                raise OptionsError(f"The web configuration {path} cannot be read: {error.strerror}.") from error
            except OptionsError as error:
                raise OptionsError(f"The web configuration {path} cannot be used: {error}.") from error

    @property
    def tls(self) -> bool:
        """Whether TLS is spoken."""
        return self._rules.context is not None

    def admits(
        self, authorization: str | None, *, client: str = "", is_gone: Callable[[], bool] = lambda: False
    ) -> bool:
        """Return whether a request with this ``Authorization`` header may be answered; see `BasicAuth.admits`."""
        return self._present().auth.admits(authorization, client=client, is_gone=is_gone)

    def headers(self) -> Mapping[str, str]:
        """Return what is added to every answer."""
        return self._present().headers

    def context(self) -> ssl.SSLContext:
        """Return what the next connection speaks TLS with; only where `tls` is true."""
        context = self._present().context
        assert context is not None
        return context

    def _present(self) -> _Rules:
        if self._path is None:
            return self._rules
        with self._lock:
            stamps = _stamps(self._watched)
            if stamps != self._stamps:
                self._take_over(self._path)
            return self._rules

    def _take_over(self, path: str) -> None:
        before = self._rules
        try:
            rules = self._read(path)
            if (rules.context is None) != (before.context is None):
                raise OptionsError("TLS is switched on or off by a restart only")
        except (OSError, OptionsError) as error:
            _LOG.error("The web configuration %s has changed and cannot be used, the old one stays: %s", path, error)
            return
        self._rules = rules
        _LOG.info("The web configuration %s has changed and is in force", path)

    def _read(self, path: str) -> _Rules:
        # The dates are taken before the contents: what changes in between is read once more, not missed.
        self._stamps = _stamps(self._watched)
        config = read_web_config(path)
        watched = (path, *_files_of(config))
        if watched != self._watched:
            self._watched, self._stamps = watched, _stamps(watched)
        context = None if config.tls is None else tls_context(config.tls)
        return _Rules(BasicAuth(config.users), config.headers, context)


def _files_of(config: WebConfig) -> tuple[str, ...]:
    if config.tls is None:
        return ()
    files = (config.tls.cert_file, config.tls.key_file, config.tls.client_ca_file)
    return tuple(path for path in files if path is not None)


def _stamps(paths: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(_stamp(path) for path in paths)


def _stamp(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_size, status.st_ino
