"""The scorecard of exact resume: what it counts as what; and a few of its trials, drawn at random with a fixed seed."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.exactness.__main__ import Servers, draw, is_there
from benchmarks.exactness.judge import BITS, BOTH, EXACT, NOT_RESUMED, ORDER, REPEATED, SKIPPED, Said, judge
from benchmarks.exactness.matrix import FRAMEWORKS
from benchmarks.exactness.table import Result, beside, by_framework, by_reason
from benchmarks.faults.launcher import TENSORFLOW_ENVIRONMENT

NAMES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "PyTorch": ({}, ("torch", "torchdata", "accelerate")),
    "Shapes": ({}, ("torch",)),
    "Transformers": ({}, ("torch", "transformers", "accelerate")),
    "Keras": ({"backend": "jax", "data": "arrays"}, ("keras", "jax")),
}
"""Those of which trials are made here, with the options that they have, and what they import."""
TRAININGS = 2


def said(*sessions: str) -> Said:
    """What was said by sessions: words apart by blanks, lines by slashes."""
    found = Said()
    for session in sessions:
        found.add([line.split() for line in session.split("/")])
    return found


TRUTH = said("batch 1 4,5 0x1/batch 2 6,7 0x2/batch 3 5,4 0x3/end 3 aa")
FIRST = "verdict null/batch 1 4,5 0x1/batch 2 6,7 0x2"


def test_what_a_trial_counts_as() -> None:
    """Batches after the restored one are made again, and count once; the first way that applies is named."""
    for second, way in [
        ("batch 2 6,7 0x2/batch 3 5,4 0x3/end 3 aa", EXACT),
        ("batch 3 5,4 0x3/end 3 aa", EXACT),
        ("batch 2 6,7 0x2/batch 3 5,4 0x3/end 3 bb", BITS),
        ("batch 2 6,7 0x2/batch 3 5,4 0x4/end 3 aa", BITS),
        ("batch 2 5,7 0x2/batch 3 6,4 0x3/end 3 aa", ORDER),
        ("batch 2 6,7 0x2/batch 3 6,7 0x2/batch 4 5,4 0x3/end 4 aa", REPEATED),
        ("batch 2 5,4 0x3/end 2 aa", SKIPPED),
        ("batch 2 6,7 0x2/batch 3 6,7 0x3/end 3 aa", BOTH),
        ("batch 1 4,5 0x1/batch 2 6,7 0x2/batch 3 5,4 0x3/end 3 aa", NOT_RESUMED),
        ("verdict null/batch 3 5,4 0x3/end 3 aa", NOT_RESUMED),
        ("batch 2 6,7 0x2", NOT_RESUMED),
        ("end 2 aa", SKIPPED),
    ]:
        outcome = judge(TRUTH, said(FIRST, second))
        assert outcome.way == way
        assert outcome.is_wrong is (way != EXACT)


def test_a_verdict_beside_the_truth() -> None:
    """A reason makes of a wrong trial a named one, of an exact one an overcautious one; each is counted once."""
    exact, other = "batch 3 5,4 0x3/end 3 aa", "batch 3 5,4 0x4/end 3 aa"
    verdicts = ("verdict []/", 'verdict ["The noise is new."]/')
    results = [
        Result("PyTorch", 1, 0, "ours", {"workers": 2}, None, judge(TRUTH, said(FIRST, verdict + second)))
        for second in (exact, other)
        for verdict in verdicts
    ]
    assert "| PyTorch | 4 | 1 | 1 | 1 | 1 |" in by_framework(results)
    assert "| PyTorch | The noise is new. | 2 | 1 |" in by_reason(results)
    peer = Result("PyTorch", 1, 0, "peer", {"workers": 2}, None, judge(TRUTH, said(FIRST, other)))
    assert "| PyTorch | peer | 1 | 0 | 0 | 0 | 0 | 0 | 1 | 0 | 0 of 1 |" in beside([*results, peer])


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
    fitting = [item for item in draw(framework, 100, seed=3, kills=2) if wanted.items() <= item.options.items()]
    results = []
    with Servers(tmp_path, sys.executable, {framework.program(item.options) for item in fitting}) as servers:
        for item in fitting[:TRAININGS]:
            home = tmp_path / str(item.number)
            home.mkdir()
            item.make(servers, home, random.Random(item.number), with_peers=False)
            results += item.results
    assert len(results) == 2 * TRAININGS
    assert [result for result in results if result.outcome.is_wrong] == []
