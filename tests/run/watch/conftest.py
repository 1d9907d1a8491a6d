"""What the tests of the watch share: events files on disk, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.story import run_file


@pytest.fixture(scope="session")
def writing(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes events files."""
    return run_file


@pytest.fixture
def clock(clock_at: Callable[[float], Any]) -> Any:
    """A clock a hundred seconds after runs begin."""
    return clock_at(1_700_000_100.0)
