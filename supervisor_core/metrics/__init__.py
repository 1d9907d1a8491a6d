"""What Prometheus sees of a run: one table of metrics, a collector over it, and a server.

Importing this loads neither prometheus_client nor an HTTP server; the names below load their modules when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from supervisor_core.address import parse_address
    from supervisor_core.metrics.collector import RunCollector
    from supervisor_core.metrics.server import MetricsServer
    from supervisor_core.metrics.table import METRICS

__all__ = ["METRICS", "MetricsServer", "RunCollector", "parse_address"]

_MODULES = {
    "METRICS": "metrics.table",
    "MetricsServer": "metrics.server",
    "RunCollector": "metrics.collector",
    "parse_address": "address",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"supervisor_core.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
