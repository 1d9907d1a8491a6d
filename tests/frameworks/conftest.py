"""Trainings of other frameworks. Each module is skipped where its framework is not installed."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def trial_in(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that runs a training in a forked process."""
    return module_at("frameworks/trial.py")
