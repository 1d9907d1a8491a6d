"""What the command's tests share: runs to look at, and a terminal to type at."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from supervisor_core.cli import main


@pytest.fixture(scope="session")
def writer() -> ModuleType:
    """The module that writes checkpoints byte by byte, from the checkpoint tests."""
    name = "checkpoint_bundle_writer"
    if name not in sys.modules:
        path = Path(__file__).parents[1] / "checkpoint" / "bundle_writer.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def run() -> Callable[..., Result]:
    """Returns a function that runs ``tb-supervisor`` with these arguments."""
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])
