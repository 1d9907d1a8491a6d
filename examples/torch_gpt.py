"""A small language model learns its letters in a loop without a DataLoader, in the shape of nanoGPT's train.py.

    python -m examples.torch_gpt --logdir /tmp/torch-gpt --steps 400

Kill it in any way you like and type the same again: it goes on at its last checkpoint, with the same numbers. The text
is made here; it takes about 20 seconds on a CPU.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import torch
from torch import nn

from supervisor_core.torch import supervised

TEXT = " ".join(f"{a} and {b} make {a + b}." for a in range(40) for b in range(40))
LETTERS = sorted(set(TEXT))
WIDTH, CONTEXT, BATCH = 32, 32, 16
DATA = torch.tensor([LETTERS.index(letter) for letter in TEXT])
SPLIT = len(DATA) * 9 // 10


class Model(nn.Module):
    """One block of attention over letters; returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, len(LETTERS))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, inputs: Any, targets: Any) -> Any:
        """Return the mean loss of the next letters."""
        hidden = self.block(self.letters(inputs) + self.places.weight, src_mask=self.mask)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())


def get_batch(split: str) -> Any:
    """Draw a batch from PyTorch's random state, which is in each checkpoint."""
    data = DATA[:SPLIT] if split == "train" else DATA[SPLIT:]
    rows = torch.stack(
        [data[start : start + CONTEXT + 1] for start in torch.randint(len(data) - CONTEXT - 1, (BATCH,))]
    )
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def estimate_loss(model: Any) -> float:
    """Return the mean loss of some batches of the other split."""
    model.eval()
    losses = [model(*get_batch("val")).item() for _ in range(10)]
    model.train()
    return sum(losses) / len(losses)


def main() -> None:
    """Train with accumulated gradients and a learning rate by step, evaluate, keep the best loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-secs", type=float, default=5)
    given = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("supervisor_core").setLevel(logging.INFO)  # shows saves, and whether a resume was exact
    logdir, max_iters, eval_interval, accumulation, save_secs = given.logdir, given.steps, 100, 2, given.save_secs

    torch.set_num_threads(1)
    torch.manual_seed(1337)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    best = {"val_loss": 1e9}
    parts = {"model": model, "optimizer": optimizer, "scaler": scaler, "state": {"best": best}}
    loop = supervised(range(max_iters), logdir, save_secs=save_secs, **parts)
    for iter_num in loop:
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * (1 - iter_num / max_iters)
        if iter_num % eval_interval == 0:
            with loop.phase("evaluating"):
                val_loss = estimate_loss(model)
            if val_loss < best["val_loss"]:
                best["val_loss"] = val_loss
            loop.log("val_loss", val_loss)
            print(f"step {iter_num}: val loss {val_loss:.4f}, best {best['val_loss']:.4f}", flush=True)
        for _ in range(accumulation):
            inputs, targets = get_batch("train")
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(inputs, targets) / accumulation
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        loop.log("loss", loss * accumulation)
    print(f"step {loop.global_step}: loss {loss.item() * accumulation:.6f}", flush=True)


if __name__ == "__main__":
    main()
