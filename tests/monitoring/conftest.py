"""What the tests of the monitoring share: Prometheus's own tools, as far as they are installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

# Modules that only tests of this directory import, under names that no other module has.
for name in ("servers", "end_to_end"):
    if f"monitoring_{name}" not in sys.modules:
        spec = importlib.util.spec_from_file_location(f"monitoring_{name}", Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

exporter, prometheus, trainer, webhook = (
    getattr(sys.modules["monitoring_end_to_end"], name) for name in ("exporter", "prometheus", "trainer", "webhook")
)
