"""What a training keeps where no checkpoint has it, for each facade: a resume that is not exact is never called exact,
and one that is exact is named only where no value can show it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from values_program import FACADES, UNKNOWN, trial

MODULES = {
    "supervise without PyTorch": "numpy", "JAX": "jax", "Lightning": "lightning", "Transformers": "transformers",
    "Keras": "keras",
}  # fmt: skip


OVERCAUTIOUS = {("supervised, a range", "log"), ("Keras", "own number")}
"""Named all the same: a count in a loop whose data are not known, and what a callback sets from what is saved."""
IN_PROCESS = [(facade, kind) for facade, (_, kinds) in FACADES.items() if facade != "Keras" for kind in kinds]


@pytest.mark.filterwarnings("ignore")  # of the frameworks
@pytest.mark.parametrize(("facade", "kind"), IN_PROCESS)
def test_what_a_resume_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facade: str, kind: str) -> None:
    """The bits at the end decide what is right."""
    module = MODULES.get(facade, "torch")
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed: make test-frameworks has it")
    if module == "numpy":
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    is_exact, verdict = trial(facade, kind, tmp_path)
    assert is_exact or verdict.startswith("not exact: ")
    if kind not in UNKNOWN and (facade, kind) not in OVERCAUTIOUS:
        assert not is_exact or verdict == "not observed"


@pytest.mark.skipif(not (find_spec("keras") and find_spec("torch")), reason="make test-frameworks has Keras")
def test_what_a_resume_of_keras_lacks_is_named() -> None:
    """In a process of its own: the backend is chosen when Keras is imported."""
    program = str(Path(__file__).with_name("values_program.py"))
    environment = {**os.environ, "KERAS_BACKEND": "torch", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, program, "Keras"]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=True)
    found = {tuple(part.strip() for part in (line[14:41], line[41:60], line[:13])) for line in done.stderr.split("\n")}
    kinds = {(kind, what) for facade, kind, what in found if facade == "Keras"}
    assert {kind for kind, what in kinds} == set(FACADES["Keras"][1])
    assert {(facade, kind) for facade, kind, what in found if what == "OVERCAUTIOUS"} <= OVERCAUTIOUS
    assert not any(what in ("WRONG", "ERROR") for _, what in kinds)
