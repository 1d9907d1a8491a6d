"""`HeldFile`: which findings an exporter holds, beside its cache, for the exporter that is started next."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from supervisor_core.base.log import error_text
from supervisor_core.metrics.exporter import Exporter, HeldRuns
from supervisor_core.storage.local import filesystem_for

_LOG = logging.getLogger("supervisor_core")


class HeldFile:
    """A file that is replaced as a whole. One that cannot be written is logged, once until it can be again.

    Args:
        cache: the directory.
        logdirs: what the exporter looks at; those of others have files of their own.
    """

    def __init__(self, cache: str, logdirs: Sequence[str]) -> None:
        digest = sha256("\0".join(sorted(logdirs)).encode("utf-8", "surrogatepass")).hexdigest()
        self._path = os.path.join(cache, f"held-{digest[:16]}.json")
        self._written: bytes | None = None
        self._fails = False

    def read(self) -> HeldRuns:
        """Return what the exporter before held; nothing where there is no such file, or it is damaged."""
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=dict[str, dict[str, dict[str, tuple[str, float]]]])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            _LOG.warning("%s is ignored, holds begin again: %s", self._path, error_text(error))
            return {}

    def update(self, exporter: Exporter) -> None:
        """Write what has changed; nothing before the first look is over, which finds what was held before."""
        content = json.dumps(exporter.held).encode() if exporter.has_looked else self._written
        if content is None or content == self._written:
            return
        try:
            filesystem, path = filesystem_for(self._path)
            filesystem.replace(path, content)
        except OSError as error:
            if not self._fails:
                _LOG.error("%s cannot be written: %s", self._path, error_text(error))
            self._fails = True
            return
        self._written, self._fails = content, False
