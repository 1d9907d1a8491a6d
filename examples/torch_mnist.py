"""A classifier with a function for each epoch, in the shape of main.py of pytorch/examples' mnist.

    python -m examples.torch_mnist --logdir /tmp/torch-mnist --epochs 5

Kill it in any way you like and type the same again: it goes on in its epoch, with the same numbers. The images are made
here; it takes about 20 seconds on a CPU.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import torch
from torch import nn, optim
from torch.nn import functional
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from supervisor_core.torch import supervised


def images(count: int, seed: int) -> TensorDataset:
    """Return noisy images of bars: the class is the bar's place."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=source)
    data = torch.rand(count, 1, 12, 12, generator=source)
    data[torch.arange(count), 0, labels] += 0.5
    return TensorDataset(data, labels)


class Net(nn.Module):
    """A small convolutional network with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(200, 10)

    def forward(self, x: Any) -> Any:
        """Return the logarithms of the classes' probabilities."""
        x = functional.max_pool2d(functional.relu(self.conv(x)), 2)
        return functional.log_softmax(self.fc(self.dropout(torch.flatten(x, 1))), dim=1)


def train(args: Any, model: Any, device: Any, train_loader: Any, optimizer: Any, epoch: int) -> None:
    """Train one epoch."""
    model.train()
    for inputs, labels in train_loader:
        batch_idx = train_loader.batch
        data, target = inputs.to(device), labels.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = functional.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            done, samples = batch_idx * len(data), len(train_loader.dataset)
            share = 100.0 * batch_idx / len(train_loader)
            print(f"Train Epoch: {epoch} [{done}/{samples} ({share:.0f}%)]\tLoss: {loss.item():.6f}", flush=True)
            if args.dry_run:
                break


def test(model: Any, device: Any, test_loader: Any) -> None:
    """Print the loss and the accuracy on other images."""
    model.eval()
    test_loss, correct = 0.0, 0
    with torch.no_grad():
        for data, target in test_loader:
            output = model(data.to(device))
            test_loss += functional.nll_loss(output, target.to(device), reduction="sum").item()
            correct += output.argmax(1).eq(target.to(device)).sum().item()
    test_loss /= len(test_loader.dataset)
    print(f"Test set: Average loss: {test_loss:.9f}, Accuracy: {correct}/{len(test_loader.dataset)}", flush=True)


def main() -> None:
    """Train for the epochs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", default="/tmp/torch-mnist")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--save-steps", type=int, default=50)
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(1)
    device = torch.device("cpu")
    train_loader = DataLoader(images(4000, 0), batch_size=64, shuffle=True)
    test_loader = DataLoader(images(1000, 1), batch_size=500)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    loop = supervised(train_loader, args.logdir, epochs=args.epochs, save_steps=args.save_steps, **parts)
    for epoch in loop.epochs():
        train(args, model, device, loop, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()


if __name__ == "__main__":
    main()
