"""A small network learns handwritten digits with PyTorch, and survives whatever ends its process.

    python -m examples.torch_digits --logdir /tmp/torch-digits --epochs 20

Kill it in any way you like and type the same again: it goes on from its last checkpoint, in the middle of the epoch,
with the same numbers. The data come with scikit-learn: 1,797 images of 8 by 8 pixels.
"""

from __future__ import annotations

import argparse
import logging

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from supervisor_core.torch import supervised

TEST_IMAGES = 297


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
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target)
    training = TensorDataset(images[:-TEST_IMAGES], labels[:-TEST_IMAGES])
    loader = DataLoader(training, batch_size=50, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters())

    with supervised(
        loader, given.logdir, epochs=given.epochs, model=model, optimizer=optimizer, save_secs=given.save_secs
    ) as loop:
        for batch_images, batch_labels in loop:
            model.train()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch_images), batch_labels)
            loss.backward()
            optimizer.step()
            if loop.batch == len(loader) - 1:
                with loop.phase("evaluating"), torch.no_grad():
                    model.eval()
                    right = model(images[-TEST_IMAGES:]).argmax(1) == labels[-TEST_IMAGES:]
                loop.log({"loss": loss, "accuracy": right.float().mean()})
                print(f"epoch {loop.epoch}: accuracy {right.float().mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
