"""JAX: a loop over Grain's batches, under ours, or with Orbax's `CheckpointManager` and Grain's handler."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

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
    say_verdict,
)  # fmt: skip
from supervisor_core.jax import supervised

FEATURES, LABELS = digits()
STEPS = EPOCHS * PER_EPOCH


def batches(options: dict[str, Any]) -> Any:
    """Return Grain's iterator over endless epochs of samples."""
    samples = [(number, FEATURES[number], LABELS[number]) for number in range(SAMPLES)]
    dataset = grain.MapDataset.source(samples).seed(7)
    if options["shuffle"]:
        dataset = dataset.shuffle()
    if options["draws"]:
        dataset = dataset.random_map(
            lambda item, rng: (item[0], item[1] + rng.standard_normal(dtype=np.float32), item[2])
        )
    dataset = dataset.repeat().batch(BATCH)
    read = grain.ReadOptions(num_threads=options["threads"], prefetch_buffer_size=2 * options["threads"])
    return iter(dataset.to_iter_dataset(read))


class Training:
    """What is trained, and one step of it: the same under each system."""

    def __init__(self, options: dict[str, Any]) -> None:
        np.random.seed(0)
        self.options = options
        dtype = jnp.bfloat16 if options["bfloat16"] else jnp.float32
        rate = optax.cosine_decay_schedule(0.1, 100) if options["schedule"] else 0.05
        self.optimizer = optax.adam(rate) if options["optimizer"] == "adam" else optax.sgd(rate, momentum=0.9)
        if options["accumulate"] > 1:
            self.optimizer = optax.MultiSteps(self.optimizer, options["accumulate"])
        first, second = jax.random.split(jax.random.key(0))
        params = {
            "first": jax.random.normal(first, (64, 16), dtype) * 0.1,
            "second": jax.random.normal(second, (16, 10), dtype) * 0.1,
        }
        key: Any = jax.random.key(3) if options["typed key"] else jax.random.PRNGKey(3)
        self.state = {
            "params": params, "opt_state": self.optimizer.init(params), "key": key,
            "average": jax.tree.map(jnp.zeros_like, params), "count": jnp.zeros((), jnp.int32),
        }  # fmt: skip
        self.step = jax.jit(self._step, donate_argnums=(0,) if options["donate"] else ())

    def _loss(self, params: Any, features: Any, labels: Any, key: Any) -> Any:
        hidden = jax.nn.relu(features.astype(params["first"].dtype) @ params["first"])
        if self.options["dropout"]:
            hidden = jnp.where(jax.random.bernoulli(key, 0.7, hidden.shape), hidden / 0.7, 0)
        logits = (hidden @ params["second"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def _step(self, state: Any, features: Any, labels: Any) -> Any:
        key, drop = jax.random.split(state["key"])
        loss, grads = jax.value_and_grad(self._loss)(state["params"], features, labels, drop)
        updates, opt_state = self.optimizer.update(grads, state["opt_state"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        average = jax.tree.map(lambda old, new: old * 0.9 + new * 0.1, state["average"], params)
        count = state["count"] + 1
        return {"params": params, "opt_state": opt_state, "key": key, "average": average, "count": count}, loss

    def learn(self, state: Any, batch: Any, interruption: Interruption) -> tuple[Any, Any]:
        """Train on a batch."""
        ids, features, labels = batch
        if self.options["noise"]:
            features = features + np.float32(np.random.standard_normal() * 0.1)
        state, loss = self.step(state, features, labels)
        count = int(state["count"])
        interruption.look(count)
        say_batch(count, ids.tolist(), float(loss))
        return state, loss


def end(state: Any) -> None:
    """Say the weights."""
    weights = jax.tree.leaves((state["params"], state["average"]))
    say_end(int(state["count"]), [np.asarray(leaf) for leaf in weights])


def plainly(asked: Asked) -> None:
    """Without saving."""
    training, data = Training(asked.options), batches(asked.options)
    interruption = Interruption(asked, lambda: True)
    state = training.state
    for _ in range(STEPS):
        state, _ = training.learn(state, next(data), interruption)
    end(state)


def with_ours(asked: Asked) -> None:
    """`supervisor_core.jax.supervised`."""
    training, data = Training(asked.options), batches(asked.options)
    interruption = Interruption(asked, is_any(asked.directory, "checkpoints/ckpt-*/supervisor-manifest.json"))
    given = data if asked.options["data="] else None
    with supervised(
        asked.directory, state=training.state, data=given, save_secs=None, save_steps=asked.save_every
    ) as run:
        say_verdict(run.exactness)
        for _ in run.steps(STEPS):
            run.state, loss = training.learn(run.state, next(data), interruption)
            run.log("loss", loss)
    end(run.state)


def with_orbax(asked: Asked) -> None:
    """Orbax's manager, each save awaited, with the iterator in the same checkpoint, as Grain's guide has it."""
    training, data = Training(asked.options), batches(asked.options)
    interruption = Interruption(asked, lambda: True)
    state, step = training.state, 0
    options = ocp.CheckpointManagerOptions(max_to_keep=3, create=True, save_interval_steps=asked.save_every)
    with ocp.CheckpointManager(asked.directory, options=options) as manager:
        latest = manager.latest_step()
        if latest is not None:
            found = manager.restore(
                latest,
                args=ocp.args.Composite(
                    state=ocp.args.StandardRestore(state), data=grain.checkpoint.CheckpointRestore(data)
                ),
            )
            state, data, step = found["state"], found["data"], latest
        while step < STEPS:
            state, _ = training.learn(state, next(data), interruption)
            step += 1
            given = ocp.args.Composite(state=ocp.args.StandardSave(state), data=grain.checkpoint.CheckpointSave(data))
            manager.save(step, args=given)
            manager.wait_until_finished()
    end(state)


SYSTEMS = {"none": plainly, "ours": with_ours, "Orbax with Grain": with_orbax}


def main(values: dict[str, Any]) -> None:
    """Train."""
    warnings.simplefilter("ignore")
    asked = Asked(**values)
    jax.config.update("jax_compilation_cache_dir", str(Path(asked.directory).parents[1] / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    SYSTEMS[asked.system](asked)
