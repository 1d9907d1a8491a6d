"""A small network learns handwritten digits with Hugging Face's Trainer, and survives whatever ends its process.

    python -m examples.transformers_digits --logdir /tmp/transformers-digits --epochs 20

Kill it in any way you like and type the same again: it goes on from its last whole checkpoint, in the middle of the
epoch, with the same numbers. The data come with scikit-learn: 1,797 images of 8 by 8 pixels.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from transformers import Trainer, TrainingArguments

from supervisor_core.transformers import SupervisorCallback

TEST_IMAGES = 297


class Model(nn.Module):
    """Two layers with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))

    def forward(self, images: Any, labels: Any) -> dict[str, Any]:
        """Return the loss and the scores of the digits."""
        scores = self.layers(images)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


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
    samples = [{"images": image, "labels": int(label)} for image, label in zip(images, digits.target, strict=True)]
    arguments = TrainingArguments(
        output_dir=given.logdir, num_train_epochs=given.epochs, per_device_train_batch_size=50, learning_rate=1e-3,
        eval_strategy="epoch", logging_steps=30, save_strategy="no", save_total_limit=3, report_to=[],
    )  # fmt: skip
    supervisor = SupervisorCallback(save_secs=given.save_secs)
    trainer = Trainer(
        model=Model(),
        args=arguments,
        train_dataset=samples[:-TEST_IMAGES],
        eval_dataset=samples[-TEST_IMAGES:],
        compute_metrics=lambda given: {"accuracy": float((given[0].argmax(1) == given[1]).mean())},
        callbacks=[supervisor],
    )
    trainer.train(resume_from_checkpoint=supervisor.resume_from())


if __name__ == "__main__":
    main()
