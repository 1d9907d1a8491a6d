"""A training that knows nothing of a supervisor: numpy, a checkpoint of its own, TensorBoard's writer of event files.

    python -m examples.plain --logdir /tmp/plain --die-at 300

A line is fitted to noisy points. Needs numpy and TensorBoard. The same again goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import numpy as np
from tensorboard.summary import Writer

SAVE_STEPS = 100
STEP_SECS = 0.01
"""A step takes this long at least, as that of a real model does."""


def main() -> None:
    args = parse_args()
    directory = Path(args.logdir)
    checkpoint = directory / "plain.npz"
    weights, first = np.zeros(2), 0
    if checkpoint.exists():
        saved = np.load(checkpoint)
        weights, first = saved["weights"], int(saved["step"])
    print(f"training from step {first}", flush=True)
    writer = Writer(str(directory))
    for step in range(first + 1, args.steps + 1):
        weights, loss = train(weights, step)
        time.sleep(STEP_SECS)
        if step % 10 == 0:
            writer.add_scalar("loss", loss, step)
            writer.flush()
        if step % SAVE_STEPS == 0:
            save(checkpoint, weights, step)
        if step == args.die_at and first == 0:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is full
    writer.close()
    print(f"trained to step {args.steps}", flush=True)


def train(weights: np.ndarray, step: int) -> tuple[np.ndarray, float]:
    """Return the weights after a step of gradient descent, and the loss before it."""
    random = np.random.default_rng(step)
    inputs = random.normal(size=64)
    errors = weights[0] * inputs + weights[1] - (3 * inputs + 1 + random.normal(scale=0.1, size=64))
    gradient = np.array([np.mean(errors * inputs), np.mean(errors)])
    return weights - 0.02 * gradient, float(np.mean(errors**2))


def save(checkpoint: Path, weights: np.ndarray, step: int) -> None:
    """Replace the checkpoint, whole or not at all."""
    staged = checkpoint.with_suffix(".new.npz")
    np.savez(staged, weights=weights, step=step)
    staged.replace(checkpoint)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.plain", description="Fit a line.")
    parser.add_argument("--logdir", required=True, help="where the checkpoint and events go")
    parser.add_argument("--steps", type=int, default=600, help="train up to this step (%(default)s)")
    parser.add_argument("--die-at", type=int, help="kill this process at that step, unless it was resumed")
    return parser.parse_args()


if __name__ == "__main__":
    main()
