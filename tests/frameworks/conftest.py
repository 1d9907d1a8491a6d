"""Trainings of other frameworks. Each module is skipped where its framework is not installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `trial`, which the modules import while they are collected


@pytest.fixture(scope="module")
def truth(job: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What two ranks of the module's `job` say in a training that nothing interrupts."""
    said: list[list[str]] = job(tmp_path_factory.mktemp("truth")).run()
    return said
