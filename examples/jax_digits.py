"""A small network learns handwritten digits with JAX, and survives whatever ends its process.

    python -m examples.jax_digits --logdir /tmp/jax-digits --epochs 20

Kill it in any way you like and type the same again: it goes on from its last checkpoint, in the middle of the epoch,
with the same numbers. The data come with scikit-learn: 1,797 images of 8 by 8 pixels. Needs grain and optax besides.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from supervisor_core.jax import supervised

TEST_IMAGES, BATCH = 297, 50


def outputs_of(params: Any, images: Any) -> Any:
    """Return the network's outputs."""
    hidden = jax.nn.relu(images @ params["first"] + params["first_bias"])
    return hidden @ params["second"] + params["second_bias"]


def main() -> None:
    """Train, evaluate after each epoch, print the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--save-secs", type=float, default=10)
    given = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("supervisor_core").setLevel(logging.INFO)  # shows saves, and whether a resume was exact

    digits = load_digits()
    images = (digits.images.reshape(-1, 64) / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    samples = list(zip(images[:-TEST_IMAGES], labels[:-TEST_IMAGES], strict=True))
    dataset = grain.MapDataset.source(samples).seed(0).shuffle().repeat().batch(BATCH)
    batches = iter(dataset.to_iter_dataset())

    first, second, dropout = jax.random.split(jax.random.key(0), 3)
    params = {
        "first": jax.random.normal(first, (64, 128)) / 8,
        "first_bias": jnp.zeros(128),
        "second": jax.random.normal(second, (128, 10)) / 11,
        "second_bias": jnp.zeros(10),
    }
    optimizer = optax.adamw(5e-3)
    state = {"params": params, "opt_state": optimizer.init(params), "key": dropout}

    @jax.jit
    def train_step(state: Any, images: Any, labels: Any) -> Any:
        key, drawn = jax.random.split(state["key"])
        images = images * jax.random.bernoulli(drawn, 0.8, images.shape)

        def loss_of(params: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(outputs_of(params, images), labels).mean()

        loss, grads = jax.value_and_grad(loss_of)(state["params"])
        updates, opt_state = optimizer.update(grads, state["opt_state"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state, "key": key}, loss

    epoch = len(samples) // BATCH
    with supervised(given.logdir, state=state, data=batches, save_secs=given.save_secs) as run:
        for step in run.steps(given.epochs * epoch):
            run.state, loss = train_step(run.state, *next(batches))
            run.log("loss", loss)
            if step % epoch == epoch - 1:
                with run.phase("evaluating"):
                    guesses = outputs_of(run.state["params"], images[-TEST_IMAGES:]).argmax(1)
                    accuracy = float((guesses == labels[-TEST_IMAGES:]).mean())
                run.log("accuracy", accuracy)
                print(f"epoch {step // epoch}: accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
