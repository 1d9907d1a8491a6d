"""What the command's tests share: runs to look at, and a terminal to type at."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from supervisor_core.cli import main


@pytest.fixture(scope="session")
def writer(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes checkpoints byte by byte, from the checkpoint tests."""
    return module_at("checkpoint/bundle_writer.py")


@pytest.fixture
def run() -> Callable[..., Result]:
    """Returns a function that runs ``tb-supervisor`` with these arguments."""
    # Click keeps standard error apart by itself from 8.2 on; before, it has to be asked to.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return lambda *arguments: CliRunner(**apart).invoke(main, [str(argument) for argument in arguments])
