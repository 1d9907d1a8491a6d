"""`MetricsEndpoint`: the metrics server of this process, and the wait for a last scrape."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from supervisor_core.address import parse_address
from supervisor_core.options import Options
from supervisor_core.run.status import RunStatus

if TYPE_CHECKING:
    from supervisor_core.metrics.server import MetricsServer

ADDRESS_VARIABLE = "SUPERVISOR_METRICS_ADDRESS"
"""The environment's variable that names the address where `Options.metrics_address` does not."""

LINGER_SCRAPES = 2
"""How many scrapes must have seen the planned stop before the endpoint closes."""


class MetricsEndpoint:
    """The metrics of this process over HTTP, if an address is given anywhere.

    Args:
        options: the address.
        source: returns the present status of every run of the process.
        ready: whether the run is under way, for ``/-/ready``.

    Raises:
        OptionsError: if the address cannot be read.
    """

    def __init__(self, options: Options, source: Callable[[], Iterable[RunStatus]], ready: Callable[[], bool]) -> None:
        self._server: MetricsServer | None = None
        address = options.metrics_address or os.environ.get(ADDRESS_VARIABLE)
        if address:
            parse_address(address, ADDRESS_VARIABLE)  # that of the options has been checked
            # Loaded only where metrics are served: an import of the HTTP server costs every other program nothing.
            from supervisor_core.metrics.collector import RunCollector
            from supervisor_core.metrics.process import PROCESS
            from supervisor_core.metrics.server import MetricsServer

            self._server = MetricsServer(RunCollector(source), address, ready=ready, process=PROCESS)
            self._server.start()

    @property
    def url(self) -> str | None:
        """Where the metrics are; None where nothing is served."""
        return None if self._server is None else self._server.url

    def close(self, linger_secs: float) -> None:
        """Let Prometheus see the planned stop, if it was looking at all, then free the port.

        Args:
            linger_secs: how long to wait for two more scrapes at most, in seconds.
        """
        server, self._server = self._server, None
        if server is None:
            return
        if server.scrapes and linger_secs > 0:
            server.wait_for_scrapes(LINGER_SCRAPES, linger_secs)
        server.close()
