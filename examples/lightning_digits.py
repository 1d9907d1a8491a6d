"""A small network learns handwritten digits with Lightning, and survives whatever ends its process.

    python -m examples.lightning_digits --logdir /tmp/lightning-digits --epochs 20

Kill it in any way you like and type the same again: it goes on from its last checkpoint, in the middle of the epoch,
with the same numbers. The data come with scikit-learn: 1,797 images of 8 by 8 pixels.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from supervisor_core.lightning import SupervisorCallback

TEST_IMAGES = 297


class Model(lightning.LightningModule):
    """Two layers with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))

    def training_step(self, batch: Any, number: int) -> Any:
        """Return the loss."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.layers(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        """Log the share of digits that are recognized."""
        images, labels = batch
        self.log("accuracy", (self.layers(images).argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> Any:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    """Train, and evaluate after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--save-secs", type=float, default=10)
    given = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("supervisor_core").setLevel(logging.INFO)  # shows saves, and whether a resume was exact

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target)
    training = DataLoader(TensorDataset(images[:-TEST_IMAGES], labels[:-TEST_IMAGES]), batch_size=50, shuffle=True)
    test = DataLoader(TensorDataset(images[-TEST_IMAGES:], labels[-TEST_IMAGES:]), batch_size=TEST_IMAGES)
    trainer = lightning.Trainer(
        max_epochs=given.epochs,
        log_every_n_steps=10,
        logger=False,
        enable_checkpointing=False,
        callbacks=[SupervisorCallback(given.logdir, save_secs=given.save_secs)],
    )
    trainer.fit(Model(), training, test)


if __name__ == "__main__":
    main()
