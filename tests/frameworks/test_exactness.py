"""The scorecard of exact resume: what it counts as what; and a few of its trials, drawn at random with a fixed seed."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.exactness.__main__ import Servers, draw, fixed, is_there
from benchmarks.exactness.matrix import FRAMEWORKS
from benchmarks.faults.launcher import TENSORFLOW_ENVIRONMENT

NAMES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "PyTorch": ({}, ("torch", "torchdata", "accelerate")),
    "Shapes": ({}, ("torch",)),
    "Kinds": ({"facade": "torch", "kind": "dropout"}, ("torch", "torchdata", "datasets")),
    "Transformers": ({}, ("torch", "transformers", "accelerate")),
    "Keras": ({"backend": "jax", "data": "arrays"}, ("keras", "jax")),
}
"""Those of which trials are made here, with the options that they have, and what they import."""
TRAININGS = 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_no_resume_is_called_exact_that_is_not(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings drawn at random, killed or stopped: the samples, losses and weights of one that was not interrupted,
    or a reason."""
    wanted, modules = NAMES[name]
    framework = next(item for item in FRAMEWORKS if item.name == name)
    if not is_there(replace(framework, modules=modules), sys.executable):
        pytest.skip(f"what {name} needs is not installed: make test-frameworks has it")
    for variable, value in {**TENSORFLOW_ENVIRONMENT, "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(variable, value)
    drawn = fixed(framework, 2, seed=3) if framework.fixed else draw(framework, 100, seed=3, kills=2)
    fitting = [item for item in drawn if wanted.items() <= item.options.items()]
    results = []
    with Servers(tmp_path, sys.executable, {framework.program(item.options) for item in fitting}) as servers:
        for item in fitting[:TRAININGS]:
            home = tmp_path / str(item.number)
            home.mkdir()
            item.make(servers, home, random.Random(item.number), with_peers=False)
            results += item.results
    assert len(results) == 2 * TRAININGS
    assert [result for result in results if result.outcome.is_wrong] == []
