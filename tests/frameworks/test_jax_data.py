"""JAX without an iterator of its own: batches that the step's number decides, and random keys in variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trial import Say, trial

jax = pytest.importorskip("jax", reason="jax is not installed: make test-frameworks has it")
pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")

import jax.numpy as jnp  # noqa: E402

from supervisor_core import supervise  # noqa: E402
from supervisor_core.jax import supervised  # noqa: E402
from supervisor_core.jax.loop import KEY  # noqa: E402


def test_batches_that_the_step_decides_are_declared(tmp_path: Path) -> None:
    """Such a resume is not called inexact; with `supervise`, too. Any other text is refused."""

    def body(say: Say) -> None:
        for number in (3, 5):
            with supervised(tmp_path / "jax", state={"w": jnp.ones(2)}, data="step", save_secs=None) as run:
                for step in run.steps(number):
                    run.state = {"w": run.state["w"] * step}
                assert run.exactness is None or run.exactness.verdict == "not observed"
        for number in (3, 5):
            with supervise(tmp_path / "any", state={"data": "step"}, save_secs=None) as other:
                list(other.steps(number))
                assert other.exactness is None or other.exactness.verdict == "not observed"
        with pytest.raises(TypeError):
            supervised(tmp_path / "no", state={"w": jnp.ones(2)}, data="steps")
        say("passed")

    assert trial(tmp_path, body) == (0, ["passed"])


def _train(logdir: Path, kind: str, steps: int, make: Callable[[int], Any]) -> tuple[str, ...]:
    """Draw from a key in each step; return why the resume is not exact."""
    base = make(2)
    with supervised(logdir, state={"w": jnp.ones(2), "key": make(1)}, data="step", save_secs=None) as run:
        key = run.state["key"]
        for step in run.steps(steps):
            drop = jax.random.fold_in(base, step)
            if kind != "folded":
                key, drop = jax.random.split(key)
            kept = key if kind == "in state" else run.state["key"]
            run.state = {"w": run.state["w"] + jax.random.normal(drop, (2,)), "key": kept}
        return () if run.exactness is None else run.exactness.reasons


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "raw"])
def test_a_random_key_in_a_variable_is_named(tmp_path: Path, typed: bool) -> None:
    """One that is split in the loop; not one that is folded with the step's number, or is in the state."""

    def body(say: Say) -> None:
        make = jax.random.key if typed else jax.random.PRNGKey
        for kind in ("split", "folded", "in state"):
            assert _train(tmp_path / kind, kind, 3, make) == ()
            say(" ".join((kind, *_train(tmp_path / kind, kind, 5, make))))

    assert trial(tmp_path, body) == (0, [f"split {KEY.format('key')}", "folded", "in state"])
