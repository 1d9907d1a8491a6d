"""What the checkpoint tests share: files to damage, and a file system that fails on demand."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from supervisor_core.checkpoint.filesystem import LocalFilesystem


@pytest.fixture(scope="session")
def writer() -> ModuleType:
    """The module that writes checkpoints byte by byte."""
    name = "checkpoint_bundle_writer"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("bundle_writer.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def failing_filesystem() -> Callable[..., Any]:
    """Returns a function that makes a local file system which fails: ``{"method": (path ending, error)}``."""

    def make(**faults: tuple[str, OSError]) -> Any:
        class Failing(LocalFilesystem):
            """Its methods raise where the path ends as given; what they did is in ``calls``."""

            def __init__(self) -> None:
                self.calls: list[tuple[str, str]] = []

        def wrap(name: str) -> None:
            original = getattr(LocalFilesystem, name)

            def method(self: Any, path: str, *rest: Any) -> Any:
                self.calls.append((name, path))
                ending, error = faults.get(name, ("", None))
                if error is not None and path.endswith(ending):
                    raise error
                return original(self, path, *rest)

            setattr(Failing, name, method)

        for name in ("list_names", "is_file", "open", "read", "replace", "remove", "remove_tree", "modified_at"):
            wrap(name)
        return Failing()

    return make
