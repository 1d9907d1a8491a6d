"""Trainings of other frameworks. Each module is skipped where its framework is not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `trial`, which the modules import while they are collected


@pytest.fixture(scope="module")
def truth(job: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What two ranks of the module's `job` say in a training that nothing interrupts."""
    said: list[list[str]] = job(tmp_path_factory.mktemp("truth")).run()
    return said


@pytest.fixture
def facade(request: pytest.FixtureRequest) -> str:
    """A facade of `trial.NEEDS` whose framework is installed."""
    from trial import NEEDS

    name: str = request.param
    if not find_spec(NEEDS[name]):
        pytest.skip(f"{NEEDS[name]} is not installed: make test-frameworks has it")
    return name


@pytest.fixture
def train(starter_of: Callable[[str], Any]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `facade_program.py` to its end, in a process of its own."""

    def run(
        facade: str, logdir: Path, steps: int, environment: dict[str, str] | None = None, **given: int
    ) -> subprocess.CompletedProcess[str]:
        program = [str(Path(__file__).with_name("facade_program.py")), facade, str(logdir), str(steps)]
        known = {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1", **(environment or {})}
        values = [f"{name}={value}" for name, value in given.items()]
        done: subprocess.CompletedProcess[str] = starter_of(facade).run([*program, *values], known)
        return done

    return run
