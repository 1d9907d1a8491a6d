"""What the tests of the watch share: events files on disk, a clock that stands still, and storage that can break."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from supervisor_core.events.source import LOCAL_SOURCE, Entry, FileStatus, ReadFile


@pytest.fixture(scope="session")
def writing() -> ModuleType:
    """The module that writes events files."""
    name = "watch_run_writer"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("run_writer.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@dataclass
class StillClock:
    """A clock that shows what it was set to."""

    now: float = 1_700_000_100.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> StillClock:
    """A clock a hundred seconds after runs begin."""
    return StillClock()


@dataclass
class Storage:
    """Local files, counted; ``fault`` is asked before each operation and may raise."""

    calls: list[str] = field(default_factory=list)
    fault: Callable[[str, str], None] = lambda operation, path: None

    def stat(self, path: str) -> FileStatus:
        self._ask("stat", path)
        return LOCAL_SOURCE.stat(path)

    def open(self, path: str) -> ReadFile:
        self._ask("open", path)
        return LOCAL_SOURCE.open(path)

    def list(self, directory: str) -> Iterator[Entry]:
        self._ask("list", directory)
        return LOCAL_SOURCE.list(directory)

    def _ask(self, operation: str, path: str) -> None:
        self.calls.append(operation)
        self.fault(operation, path)


@pytest.fixture
def storage() -> Storage:
    """Local files that can be made to fail."""
    return Storage()
