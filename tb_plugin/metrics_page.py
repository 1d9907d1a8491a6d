"""`MetricsPage`: the exporter's page, of what the index has read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tb_plugin.view import View

if TYPE_CHECKING:
    from supervisor_core.exporter.exporter import Exporter
    from supervisor_core.metrics.render import Format


class MetricsPage:
    """Written when it is asked for, and anew only when the index has looked again: who does not scrape pays nothing."""

    def __init__(self) -> None:
        self._writing = threading.Lock()
        self._exporter: Exporter | None = None
        self._written: View | None = None

    def scrape(self, view: View, format: Format, *, gzip: bool) -> bytes:
        """Return the metrics of a view in which every logdir has been looked at; any thread may ask."""
        assert view.secs is not None, "the page claims a look that is through"
        with self._writing:
            if self._exporter is None:
                from supervisor_core.exporter.exporter import Exporter

                self._exporter = Exporter([])
            if self._written is not view:
                self._exporter.show(view.snapshots, at=view.at, secs=view.secs)
                self._written = view
        return self._exporter.scrape(format, gzip=gzip)
