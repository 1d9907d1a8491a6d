"""The servers of the monitoring's tests, which need no tensorflow, for a training that does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

NAME = "monitoring_conftest"
if NAME not in sys.modules:
    spec = importlib.util.spec_from_file_location(NAME, Path(__file__).parents[2] / "monitoring" / "conftest.py")
    assert spec is not None and spec.loader is not None
    sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])

exporter, prometheus, trainer, webhook = (
    getattr(sys.modules[NAME], name) for name in ("exporter", "prometheus", "trainer", "webhook")
)
