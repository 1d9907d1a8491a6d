"""`OutputFile`: a file that has what an exporter knows, written again after each of its looks.

    DIR/supervisor.prom   the page, for node_exporter's textfile collector
    FILE                  the addresses of this machine's live trainings, for Prometheus' ``file_sd_configs``
    CACHE/held-*.json     which findings are held, for the exporter that is started next

A file is replaced as a whole: whoever reads it finds the old content or the new one.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from supervisor_core.base.address import format_address, parse_address
from supervisor_core.base.errors import OptionsError
from supervisor_core.base.log import error_text
from supervisor_core.metrics.exporter import Exporter, HeldRuns
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.model.run import LIVE
from supervisor_core.storage.local import filesystem_for

_LOG = logging.getLogger("supervisor_core")

PAGE_NAME = "supervisor.prom"
"""The page's file. node_exporter reads what ends like this."""
WRITE_SECS = 5.0
"""How long a file is waited for. One that takes longer is left to its thread; it is written again after that."""


class OutputFile:
    """Keeps a file as an exporter's last look makes it.

    Args:
        path: of a local file.
        content: returns what the file has; None leaves it as it is.

    A file that cannot be written is logged, once until it can be again. A disk that hangs holds up one page of the
    exporter, by `WRITE_SECS`.
    """

    def __init__(self, path: str, content: Callable[[Exporter], bytes | None]) -> None:
        self._path = path
        self._content = content
        self._written: bytes | None = None
        self._fails = False
        self._thread: threading.Thread | None = None

    def update(self, exporter: Exporter) -> None:
        """Write what has changed."""
        if self._hangs():
            return
        content = self._content(exporter)
        if content is not None and content != self._written:
            self._in_thread(self._replace, content)

    def remove(self) -> None:
        """Remove it: an exporter that has ended knows nothing."""
        if not self._hangs():
            self._in_thread(self._remove)

    def _hangs(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _in_thread(self, act: Callable[..., None], *arguments: bytes) -> None:
        self._thread = threading.Thread(target=act, args=arguments, name="supervisor-output", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads now; the next page may do better
            self._failed(error_text(error))
            return
        self._thread.join(WRITE_SECS)
        if self._hangs():
            self._failed("its disk does not answer")

    def _replace(self, content: bytes) -> None:
        try:
            filesystem, path = filesystem_for(self._path)
            filesystem.replace(path, content)
        except OSError as error:
            self._failed(error_text(error))
            return
        if self._fails:
            _LOG.info("%s can be written again", self._path)
        self._written, self._fails = content, False

    def _failed(self, why: str) -> None:
        if not self._fails:
            _LOG.error("%s cannot be written: %s", self._path, why)
        self._fails = True

    def _remove(self) -> None:
        with suppress(OSError):  # not written yet, or removed by others
            filesystem, path = filesystem_for(self._path)
            filesystem.remove(path)


def page(exporter: Exporter) -> bytes:
    """Return what a scrape gets, without what is about the process: node_exporter has its own of these names."""
    return exporter.scrape(TEXT, process=False)


def targets(exporter: Exporter) -> bytes | None:
    """Return the addresses of this machine's live trainings as ``file_sd_configs`` reads them; None before the first
    look is over: no target is lost when an exporter starts again. An address of every network becomes the machine's
    name; one of another machine is none: Prometheus would send it the job's credentials."""
    if not exporter.has_looked:
        return None
    host, found = socket.gethostname(), set()
    for status in exporter.statuses:
        session = status.session
        if session is not None and session.host == host and session.metrics_address and status.state in LIVE:
            with suppress(OptionsError):  # what others wrote may be anything
                name, port = parse_address(session.metrics_address)
                if name in ("0.0.0.0", "::"):
                    name = host
                elif not _is_of_this_machine(name):
                    continue
                found.add(format_address(name, port))
    return json.dumps([{"targets": sorted(found)}] if found else [], indent=2).encode() + b"\n"


def held_path(cache: str, logdirs: Sequence[str]) -> str:
    """Return where exporters of these logdirs keep what they hold."""
    return os.path.join(
        cache, f"held-{sha256(chr(0).join(sorted(logdirs)).encode('utf-8', 'replace')).hexdigest()[:16]}.json"
    )


def held(exporter: Exporter) -> bytes | None:
    """Return what `read_held` reads; None before the first look is over: what was held before is still to be found."""
    return json.dumps(exporter.held).encode() if exporter.has_looked else None


def read_held(path: str) -> HeldRuns:
    """Return what the exporter before held; nothing where there is no such file, or it is damaged."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, dict[str, dict[str, tuple[str, float]]]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        _LOG.warning("%s is ignored, holds begin again: %s", path, error_text(error))
        return {}


def _is_of_this_machine(address: str) -> bool:
    """Say whether an IP address, as a training records its own, is one of this machine: whether it can be taken."""
    try:
        version = ipaddress.ip_address(address).version
        with socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((address, 0))
    except (ValueError, OSError):
        return False
    return True
