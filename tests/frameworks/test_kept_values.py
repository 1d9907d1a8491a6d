"""What a training keeps where no checkpoint has it, for each facade: a resume that is not exact is never called exact,
and one that is exact is named only where no value can show it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from values_program import FACADES, UNKNOWN

MODULES = {
    "supervise without PyTorch": "numpy", "JAX": "jax", "Lightning": "lightning", "Transformers": "transformers",
    "Keras": "keras",
}  # fmt: skip


OVERCAUTIOUS = {("supervised, a range", "log"), ("Keras", "own number")}
"""Named all the same: a count in a loop whose data are not known, and what a callback sets from what is saved."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("facade", FACADES)
def test_what_a_resume_lacks_is_named(facade: str) -> None:
    """The bits at the end decide what is right. In a process of its own: frameworks cannot be taken out of one."""
    for module in {MODULES.get(facade, "torch"), *(("torch",) if facade == "Keras" else ())}:
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed: make test-frameworks has it")
    program = str(Path(__file__).with_name("values_program.py"))
    environment = {**os.environ, "KERAS_BACKEND": "torch", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, program, facade], env=environment, stderr=subprocess.PIPE, text=True, check=True
    )
    lines = done.stderr.split("\n")
    kinds = {(line[41:60].strip(), line[:13].strip()) for line in lines if line[14:41].strip() == facade}
    assert {kind for kind, _ in kinds} == set(FACADES[facade][1])
    over = {(facade, kind) for kind, what in kinds if what == "OVERCAUTIOUS" and kind not in UNKNOWN}
    assert over <= OVERCAUTIOUS
    assert not {kind for kind, what in kinds if what in ("WRONG", "ERROR")}
