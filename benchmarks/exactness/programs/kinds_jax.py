"""JAX: batches that the number of the step decides, and what a loop keeps in variables, under ours."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.exactness.programs import (
    BATCH,
    EPOCHS,
    PER_EPOCH,
    SAMPLES,
    Asked,
    Interruption,
    digits,
    is_any,
    say_batch,
    say_end,
    say_logged_reasons,
    say_verdict,
)  # fmt: skip
from supervisor_core.jax import supervised

FEATURES, LABELS = digits()
STEPS = EPOCHS * PER_EPOCH


def loss_of(weights: Any, features: Any, labels: Any, key: Any) -> Any:
    """Return the loss, with dropout."""
    kept = jax.random.bernoulli(key, 0.9, features.shape)
    return optax.softmax_cross_entropy_with_integer_labels((features * kept) @ weights, labels).mean()


@jax.jit
def step_of(state: Any, features: Any, labels: Any, key: Any, rate: Any) -> Any:
    """Return the next state, and the loss."""
    loss, grads = jax.value_and_grad(loss_of)(state["weights"], features, labels, key)
    return {**state, "weights": state["weights"] - rate * grads, "count": state["count"] + 1}, loss


class Plain:
    """A training without saving."""

    global_step, exactness = 0, None

    def __init__(self, state: Any) -> None:
        self.state = state

    def steps(self, until: int) -> range:
        """Return the numbers of the steps."""
        return range(until)


def main(values: dict[str, Any]) -> None:
    """Train. The key is kept in a variable, or in state; or is made of the step's number, as the rate is."""
    warnings.simplefilter("ignore")
    asked = Asked(**values)
    kind, captured = asked.options["kind"], asked.options["captured"]
    key, rate = jax.random.key(3), 0.5
    state: Any = {"weights": jnp.zeros((64, 10)), "count": jnp.zeros((), jnp.int32), "key": key}
    has_saved = is_any(asked.directory, "checkpoints/ckpt-*/supervisor-manifest.json")
    interruption = Interruption(asked, has_saved if asked.system == "ours" else lambda: True)
    made: Any = nullcontext(Plain(state))
    if asked.system == "ours":
        say_logged_reasons()
        made = supervised(asked.directory, state=state, data="step", save_secs=None, save_steps=asked.save_every)
    with made as run:
        if asked.system == "ours":
            say_verdict(run.exactness)
        for step in run.steps(STEPS):
            if kind == "key" and captured:
                state_key, drop = jax.random.split(run.state["key"])
                run.state = {**run.state, "key": state_key}
            elif kind == "key":
                key, drop = jax.random.split(key)
            else:
                drop = jax.random.fold_in(jax.random.key(5), step)
            if kind == "rate" and (captured or step == PER_EPOCH):
                rate = 0.05 if step >= PER_EPOCH else 0.5
            ids = np.random.default_rng(step).permutation(SAMPLES)[:BATCH]
            run.state, loss = step_of(run.state, FEATURES[ids], LABELS[ids], drop, rate)
            count = int(run.state["count"])
            interruption.look(count)
            say_batch(count, ids.tolist(), float(loss))
    say_end(int(run.state["count"]), [np.asarray(run.state["weights"])])
