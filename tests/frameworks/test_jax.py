"""JAX: an interrupted training goes on bit by bit, or says by name why not; nothing waits for the device."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed: make test-frameworks has it")
pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")
grain = pytest.importorskip("grain", reason="grain is not installed")
optax = pytest.importorskip("optax", reason="optax is not installed")
nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from supervisor_core import Options  # noqa: E402
from supervisor_core.jax import supervised  # noqa: E402
from supervisor_core.jax.arrays import JaxArrays  # noqa: E402
from supervisor_core.jax.loop import LEFT, MOST_AHEAD, NOT_SET  # noqa: E402
from supervisor_core.jax.pytrees import from_tree, to_tree  # noqa: E402
from supervisor_core.training.tree import NumpyArrays, copy_tree, read_tree, write_tree  # noqa: E402
from supervisor_core.watch.logdir_watch import LogdirWatch  # noqa: E402

PAUSE = threading.Event()  # never set
SAMPLES, BATCH, STEPS = 45, 8, 14

Say = Callable[[str], None]
Event = Callable[[Any, int], None]


def batches() -> Any:
    """Endless epochs of shuffled samples: number, features."""
    rng = np.random.default_rng(1)
    samples = [(number, rng.standard_normal(4).astype(np.float32)) for number in range(SAMPLES)]
    dataset = grain.MapDataset.source(samples).seed(7).shuffle().repeat().batch(BATCH)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=0)))


def loss_of(weights: Any, features: Any, key: Any) -> Any:
    """A loss with dropout."""
    kept = jax.random.bernoulli(key, 0.7, features.shape)
    return jnp.mean((jnp.where(kept, features, 0) @ weights["kernel"] + weights["bias"] - features.sum(1)) ** 2)


def train(logdir: Path, say: Say, *, donate: bool = False, event: Event = lambda run, step: None) -> None:
    """Train with dropout and Adam; say each step's samples and the bits of its loss."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, 100))
    params = {"kernel": jnp.ones(4), "bias": jnp.zeros((), jnp.bfloat16)}
    state = {"params": params, "opt_state": optimizer.init(params), "key": jax.random.key(3), "seen": 0}

    def step_of(state: Any, features: Any) -> Any:
        key, drop = jax.random.split(state["key"])
        loss, grads = jax.value_and_grad(loss_of)(state["params"], features, drop)
        updates, opt_state = optimizer.update(grads, state["opt_state"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt_state": opt_state, "key": key, "seen": state["seen"] + BATCH}, loss

    train_step = jax.jit(step_of, donate_argnums=(0,) if donate else ())
    data = batches()
    with supervised(logdir, state=state, data=data, save_secs=None, save_steps=4) as run:
        if run.exactness is not None:
            say(" ".join(("exact", *run.exactness.reasons)))
        for step in run.steps(STEPS):
            run.run.wait_until_saved()  # so that it is known which checkpoints there are
            event(run, step)
            ids, features = next(data)
            run.state, loss = train_step(run.state, features)
            run.log("loss", loss)
            say(f"{step} {ids.tolist()} {float(loss).hex()}")
    end = jax.tree_util.tree_leaves(run.state["params"])
    say("end " + " ".join(float(leaf.sum()).hex() for leaf in end) + f" {run.state['seen']}")


def train_nnx(logdir: Path, say: Say, *, donate: bool = False, event: Event = lambda run, step: None) -> None:
    """The same with the objects of Flax NNX, which change in place."""
    rngs = nnx.Rngs(3)
    model = nnx.Sequential(nnx.Linear(4, 4, rngs=rngs), nnx.Dropout(0.3, rngs=rngs), nnx.BatchNorm(4, rngs=rngs))
    optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)

    @nnx.jit
    def train_step(model: Any, optimizer: Any, features: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(features) - features) ** 2))(model)
        optimizer.update(model, grads)
        return loss

    data = batches()
    with supervised(
        logdir, state={"model": model, "optimizer": optimizer}, data=data, save_secs=None, save_steps=4
    ) as run:
        if run.exactness is not None:
            say(" ".join(("exact", *run.exactness.reasons)))
        for step in run.steps(STEPS):
            run.run.wait_until_saved()
            event(run, step)
            ids, features = next(data)
            loss = train_step(model, optimizer, features)
            run.log("loss", loss)
            say(f"{step} {ids.tolist()} {float(loss).hex()}")
    say(f"end {float(model.layers[0].kernel[...].sum()).hex()}")


def at(step: int, signum: int) -> Event:
    """An event: this signal at that step."""

    def event(run: Any, now: int) -> None:
        if now == step:
            os.kill(os.getpid(), signum)
            while not run.should_stop():
                PAUSE.wait(0.01)

    return event


@pytest.mark.parametrize(("program", "donate"), [(train, False), (train, True), (train_nnx, False)])
def test_a_killed_training_goes_on_bit_by_bit(
    tmp_path: Path, trial_in: ModuleType, program: Any, donate: bool
) -> None:
    """In the middle of an epoch: the same samples, the same bits of each loss and of the weights at the end. A SIGTERM
    loses no step; and a run that is complete trains no further."""
    _, truth = trial_in.trial(tmp_path, lambda say: program(tmp_path / "truth", say, donate=donate))
    logdir = tmp_path / "run"
    status, first = trial_in.trial(
        tmp_path, lambda say: program(logdir, say, donate=donate, event=at(6, signal.SIGKILL))
    )
    assert status == -signal.SIGKILL and first == truth[:6]
    status, (verdict, *second) = trial_in.trial(
        tmp_path, lambda say: program(logdir, say, donate=donate, event=at(10, signal.SIGTERM))
    )
    assert (status, verdict, second) == (-signal.SIGTERM, "exact", truth[4:11])
    status, (verdict, *third) = trial_in.trial(tmp_path, lambda say: program(logdir, say, donate=donate))
    assert (status, verdict, third) == (0, "exact", truth[11:])
    assert trial_in.trial(tmp_path, lambda say: program(logdir, say, donate=donate)) == (0, ["exact", truth[-1]])
    (item,) = LogdirWatch(str(logdir)).refresh().runs.values()
    one, two, three, four = item.run.sessions
    assert (one.outcome, two.outcome, two.last_step, three.restored_step) == ("lost", "signal", 11, 11)
    assert (three.outcome, three.last_step, four.restored_step, item.run.state) == ("completed", 14, 14, "completed")
    assert all(save.ok for save in item.run.checkpoints)
