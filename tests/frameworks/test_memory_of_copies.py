"""The memory that a save's copies take is that of the save before, or is shared with the saver process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trial import Say, trial

from supervisor_core import supervise
from supervisor_core.checkpoint import blocks, saver_process
from supervisor_core.training import saver as savers
from supervisor_core.training.tree import NumpyArrays
from tests.cases import each

SIZE = 100_000


def arrays_of(framework: str) -> tuple[Any, Any]:
    """How a framework makes an array of one number, and the kinds of its arrays."""
    if framework == "numpy":
        return lambda number: np.full(SIZE, float(number)), (NumpyArrays(),)
    if framework == "torch":
        import torch

        from supervisor_core.torch.tensors import KINDS

        return lambda number: torch.full((SIZE,), float(number)), KINDS
    import jax

    from supervisor_core.jax.arrays import JaxArrays

    return lambda number: jax.numpy.full(SIZE, float(number)), (JaxArrays(), NumpyArrays())


def saved(framework: str, logdir: Path, by: str) -> None:
    """Save five moments, and look at what was written."""
    blocks.MIN_BYTES = 1 if by == "process" else 1 << 40  # in a process of its own
    make, kinds = arrays_of(framework)
    state = {"weights": make(0), "more": make(0)[:80_000]}
    written: list[Any] = []
    real = savers.write_tree

    def write(directory: str, tree: Any, *others: Any) -> Any:
        copies = tree["objects"]["model"]
        written.append({name: (id(copy.value), float(copy.value[0])) for name, copy in copies.items()})
        return real(directory, tree, *others)

    savers.write_tree = write
    run = supervise(logdir, state={"model": state}, save_secs=None, save_steps=1)
    run.state.kinds, run.state.sources = kinds, tuple
    with run:
        saver = run._saver
        assert saver is not None
        for step in run.steps(4):
            saver.wait_until_saved()
            state["weights"] = make(step + 1)
            if step == 2:
                state["more"] = make(step + 1)[:90_000]
        saver.wait_until_saved()
        assert saver.hold(5)  # as at the begin of an evaluation
        state["weights"] = make(9)
        saver.save(6, "signal")
        assert saver._held is not None
        assert float(saver._held.captured.tree["objects"]["model"]["weights"].value[0]) == 4.0
    assert [numbers["weights"][1] for numbers in written] == [1.0, 2.0, 3.0, 4.0, 9.0, 9.0]
    again = supervise(logdir, state={"model": state}, save_secs=None)
    again.state.kinds, again.state.sources = kinds, tuple
    state["weights"] = state["weights"] * 0
    with again:
        assert np.all(np.asarray(state["weights"]) == 9.0) and np.all(np.asarray(state["more"]) == 3.0)
    if by == "process":
        assert saver_process._process is not None
        return
    assert len({numbers["weights"][0] for numbers in written}) == 1
    assert written[0]["more"][0] == written[1]["more"][0] != written[2]["more"][0]


@each("by", ["thread", "process"])
@each("framework", ["numpy", "torch", "jax"])
def test_a_save_takes_the_memory_of_the_one_before(tmp_path: Path, framework: str, by: str) -> None:
    """Each checkpoint has its own step's numbers, an array of another shape gets memory of its own, and what a signal
    would save is not overwritten."""
    pytest.importorskip(framework, reason=f"{framework} is not installed: make test-frameworks has it")

    def body(say: Say) -> None:
        saved(framework, tmp_path / "run", by)
        say("passed")

    assert trial(tmp_path, body) == (0, ["passed"])
