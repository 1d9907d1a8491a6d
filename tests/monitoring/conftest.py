"""What the tests of the monitoring share: Prometheus's own tools, as far as they are installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Modules that only tests of this directory import, under names that no other module has.
for name in (
    "served",
    "happenings",
    "scenarios",
    "state_scenarios",
    "cluster_scenarios",
    "exporter_scenarios",
    "writing_scenarios",
    "silent_scenarios",
    "servers",
    "end_to_end",
):
    if f"monitoring_{name}" not in sys.modules:
        spec = importlib.util.spec_from_file_location(f"monitoring_{name}", Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

exporter, prometheus, trainer, webhook = (
    getattr(sys.modules["monitoring_end_to_end"], name) for name in ("exporter", "prometheus", "trainer", "webhook")
)

PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
}


@pytest.fixture(scope="session")
def promtool(tool: Callable[[str], str]) -> Callable[..., str]:
    """Returns a function that runs promtool and returns what it says, or fails with that where it is not content."""

    # Its garbage collector, left alone, takes a quarter of its time, and idle threads that look for work a fifth.
    environment = {**os.environ, "GOGC": "400", "GOMAXPROCS": "1"}

    def run(*arguments: str | Path, check: bool = True) -> str:
        command = [tool("promtool"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
