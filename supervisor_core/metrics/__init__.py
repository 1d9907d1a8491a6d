"""What Prometheus sees of a run: one table of metrics, a collector over it, and a server.

Importing this loads neither prometheus_client nor an HTTP server; the names below load their modules when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.metrics.collector import RunCollector
    from supervisor_core.metrics.server import MetricsServer

__all__ = ["MetricsServer", "RunCollector"]

__getattr__, __dir__ = lazy_names(__name__, {"metrics.collector": "RunCollector", "metrics.server": "MetricsServer"})
