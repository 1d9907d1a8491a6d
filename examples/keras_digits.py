"""A small network learns handwritten digits with Keras, and survives whatever ends its process.

    KERAS_BACKEND=jax python -m examples.keras_digits --logdir /tmp/keras-digits --epochs 20

Kill it in any way you like and type the same again: it goes on from its last checkpoint, in the middle of the epoch,
with the same numbers. The data come with scikit-learn: 1,797 images of 8 by 8 pixels.
"""

from __future__ import annotations

import argparse
import logging

import keras
from sklearn.datasets import load_digits

from supervisor_core.keras import SupervisorCallback

TEST_IMAGES = 297


def main() -> None:
    """Train, evaluate after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--save-secs", type=float, default=10)
    given = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("supervisor_core").setLevel(logging.INFO)  # shows saves, and whether a resume was exact

    keras.utils.set_random_seed(0)
    digits = load_digits()
    images, labels = digits.images.reshape(-1, 64) / 16, digits.target
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((64,)), layers.Dense(128, activation="relu"), layers.Dropout(0.2), layers.Dense(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(), loss, metrics=["accuracy"])
    model.fit(
        images[:-TEST_IMAGES],
        labels[:-TEST_IMAGES],
        batch_size=50,
        epochs=given.epochs,
        validation_data=(images[-TEST_IMAGES:], labels[-TEST_IMAGES:]),
        verbose=2,
        callbacks=[SupervisorCallback(given.logdir, save_secs=given.save_secs)],
    )


if __name__ == "__main__":
    main()
